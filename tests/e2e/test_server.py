"""Wrong requests, and how a server ends."""

import http.client
import json
import pathlib
import re
import signal
import socket
import threading
import time

import openai
import pytest

from conftest import MODEL, eventually, quire

HI = [{"role": "user", "content": "Hi"}]


def post(server, path, body, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, body if isinstance(body, (str, bytes)) else json.dumps(body), headers or {})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def get(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def metric(server, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in get(server, "/metrics")[1].splitlines() if line.startswith(f"quire:{name}{{"))


def chat(**fields):
    return {"messages": HI, "max_tokens": 4, **fields}


@pytest.mark.parametrize(
    "field, value",
    [
        ("tools", [{"type": "function", "function": {}}]),
        ("tool_choice", "required"),
        ("response_format", "json"),
        ("guided_json", 5),
        ("guided_choice", []),
        ("functions", [{}]),
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 2),
        ("n", 0),
        ("max_tokens", 0),
        ("logit_bias", {"999999999": 1}),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [999999999]),
        ("bad_words", [""]),
        ("top_logprobs", 3),
        ("messages", []),
    ],
)
def test_bad_requests_name_the_field(server, field, value):
    status, body = post(server, "/v1/chat/completions", chat(**{field: value}))
    assert status == 400
    assert body["error"]["param"].partition("[")[0] == field and body["error"]["type"] == "invalid_request_error"


def test_allowed_tokens_and_bad_words(server):
    def write(**fields):
        return post(server, "/v1/completions", {"prompt": "The sea is", "max_tokens": 12, "temperature": 0, **fields})

    free = write()[1]["choices"][0]["text"]
    words = free.split()
    status, answer = write(bad_words=words)
    assert status == 200 and not set(words) & set(answer["choices"][0]["text"].split())
    letters = [post(server, "/tokenize", {"prompt": letter, "add_special_tokens": False})[1]["tokens"][0] for letter in "abc"]
    status, answer = write(allowed_token_ids=letters)
    assert status == 200 and set(answer["choices"][0]["text"]) <= set("abc")
    # If no token is left to choose, the answer ends.
    status, answer = write(allowed_token_ids=letters[:1], bad_words=["a"])
    assert status == 200 and answer["choices"][0]["text"] == "" and answer["choices"][0]["finish_reason"] == "stop"


def test_images_are_refused(server):
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    status, body = post(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})
    assert status == 400 and body["error"]["param"] == "messages[0].content[1].type"


def test_harmless_fields_are_accepted(server):
    status, _ = post(server, "/v1/chat/completions", chat(user="u", metadata={"a": "b"}, store=False, frobnicate=1, tool_choice="none"))
    assert status == 200


def test_nonsense_is_refused_and_the_server_keeps_running(server):
    assert post(server, "/v1/chat/completions", "{")[0] == 400
    assert post(server, "/v1/chat/completions", b"\xff\xfe")[0] == 400
    assert post(server, "/v1/chat/completions", "[" * 100_000)[0] == 400
    assert post(server, "/v1/completions", {"prompt": "word " * 5000})[1]["error"]["code"] == "context_length_exceeded"
    assert post(server, "/v1/nothing", {})[0] == 404
    assert get(server, "/v1/completions")[0] == 405
    assert post(server, "/v1/chat/completions", chat(model="gpt-5"))[0] == 404
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    assert get(server, "/health") == (200, '{"status":"ok"}')


def test_metrics_count_tokens_and_answers(server):
    tokens, answers = metric(server, "generation_tokens_total"), metric(server, "request_success_total")
    post(server, "/v1/completions", {"prompt": "a", "max_tokens": 7, "ignore_eos": True})
    assert metric(server, "generation_tokens_total") == tokens + 7
    assert metric(server, "request_success_total") == answers + 1
    assert metric(server, "kv_cache_usage_perc") < 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_cancels(server, stream):
    body = json.dumps({"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert eventually(lambda: metric(server, "num_requests_running") == 1)
    assert eventually(lambda: metric(server, "num_requests_running") == 0, seconds=2)


def start_long_stream(running):
    client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0, timeout=120)
    return client.completions.create(model="smollm2", prompt="Once", max_tokens=60, stream=True, temperature=0, extra_body={"ignore_eos": True})


def test_sigterm_lets_answers_finish(start_server):
    running = start_server()
    chunks = iter(start_long_stream(running))
    next(chunks)
    running.process.send_signal(signal.SIGTERM)
    assert list(chunks)[-1].choices[0].finish_reason == "length"
    assert running.stop()[0] == 0


def test_a_stream_that_outlasts_the_grace_ends_with_an_error(start_server):
    running = start_server("--grace", "0")
    client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0, timeout=120)
    stream = client.completions.create(model="smollm2", prompt="Once", max_tokens=900, stream=True, extra_body={"ignore_eos": True})
    chunks = iter(stream)
    next(chunks)
    running.process.send_signal(signal.SIGTERM)
    with pytest.raises(openai.APIError, match="stopping"):
        list(chunks)
    assert running.stop()[0] == 0


def test_a_full_queue_is_a_429(start_server):
    running = start_server("--max-num-seqs", "1", "--max-queue", "1")
    threads = [threading.Thread(target=lambda: list(start_long_stream(running))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: metric(running, "num_requests_running") + metric(running, "num_requests_waiting") == 2)
    status, body = post(running, "/v1/completions", {"prompt": "x"})
    assert status == 429 and body["error"]["code"] == "queue_full"
    for thread in threads:
        thread.join()


def test_a_port_in_use_is_one_clear_line(server):
    ended = quire("serve", "-m", MODEL, "--port", server.port, "--max-model-len", "64")
    assert ended.returncode == 1
    assert "in use" in ended.stderr and len(ended.stderr.strip().splitlines()) == 1


def test_sighup_without_files_and_sigpipe_change_nothing(start_server):
    running = start_server()
    running.process.send_signal(signal.SIGHUP)
    running.process.send_signal(signal.SIGPIPE)
    assert post(running, "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
    code, log = running.stop()
    assert code == 0 and "SIGHUP: there are no files" in log


def test_warnings_of_the_engine_reach_the_log(start_server, tmp_path):
    (tmp_path / "stranger").write_text("not a page")
    running = start_server("--cache-dir", str(tmp_path), "--cache-size", "64MiB", "--log-level", "warning", "--log-format", "json")
    code, log = running.stop()
    warnings = [record for record in map(json.loads, log.splitlines()) if record["level"] == "warning"]
    assert code == 0 and any(str(tmp_path) in record["message"] and "stranger" in record["message"] for record in warnings), log


def peak_mib(running, ask):
    """The server's peak memory while it answers."""
    process = pathlib.Path("/proc") / str(running.process.pid)
    (process / "clear_refs").write_text("5")  # resets the peak
    ask()
    return int(re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text()).group(1)) >> 10


def test_strings_of_millions_of_tokens_take_little_memory(start_server):
    running = start_server()
    body = {"prompt": "1" * 4_000_000}  # a token each
    ids = peak_mib(running, lambda: post(running, "/tokenize", body))
    status, answer = 0, {}

    def ask():
        nonlocal status, answer
        status, answer = post(running, "/tokenize", {**body, "return_token_strs": True})
    strings = peak_mib(running, ask)
    assert status == 200 and answer["token_strs"] == ["1"] * 4_000_000 and len(answer["tokens"]) == answer["count"]
    assert strings < ids + 60, (ids, strings)


def test_it_prints_the_url_once(start_server):
    running = start_server()
    time.sleep(0.1)
    running.process.send_signal(signal.SIGINT)
    assert running.process.communicate(timeout=30)[0] == ""
