"""Ollama's API and fill in the middle, against the real program. test_clients.py has Ollama's own client."""

import http.client
import json
import struct

import pytest
from conftest import MODEL, Server, eventually, skip_without_binary_and_model
from test_server import get, metric, post
from test_tools import TOOLS

ASK = [{"role": "user", "content": "Name three colors."}]
COLD = {"temperature": 0, "num_predict": 24}
SCHEMA = {"type": "object", "properties": {"colors": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 3, "maxItems": 3}},
          "required": ["colors"], "additionalProperties": False}


def connect(server, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, json.dumps(body))
    return connection, connection.getresponse()


def lines(server, path, body):
    response = connect(server, path, body)[1]
    assert (response.status, response.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in response.read().splitlines()]


def whole(server, path, body):
    status, answer = post(server, path, body | {"stream": False})
    assert status == 200, answer
    return answer


def test_chats_say_what_openais_chats_say(server):
    answer = whole(server, "/api/chat", {"model": "smollm2", "messages": ASK, "options": COLD})
    openai = post(server, "/v1/chat/completions", {"messages": ASK, "temperature": 0, "max_tokens": 24})[1]
    assert answer["message"] == {"role": "assistant", "content": openai["choices"][0]["message"]["content"]}
    assert (answer["prompt_eval_count"], answer["eval_count"]) == (openai["usage"]["prompt_tokens"], openai["usage"]["completion_tokens"])
    assert answer["done_reason"] == openai["choices"][0]["finish_reason"]
    assert 0 < answer["eval_duration"] < answer["total_duration"] and 0 < answer["prompt_eval_duration"] < answer["total_duration"]


def test_streams_by_default(server):
    ask = {"model": "smollm2:latest", "messages": ASK, "options": COLD}
    streamed = lines(server, "/api/chat", ask)
    assert len(streamed) > 5 and [line["done"] for line in streamed] == [False] * (len(streamed) - 1) + [True]
    assert "".join(line["message"]["content"] for line in streamed) == whole(server, "/api/chat", ask)["message"]["content"]
    assert {line["model"] for line in streamed} == {"smollm2:latest"}


def test_prompts_are_chats_unless_raw(server):
    chat = whole(server, "/api/chat", {"messages": [{"role": "system", "content": "Be brief."}, *ASK], "options": COLD})["message"]["content"]
    ask = {"prompt": ASK[0]["content"], "system": "Be brief.", "options": COLD}
    assert whole(server, "/api/generate", ask)["response"] == chat
    assert "".join(line["response"] for line in lines(server, "/api/generate", ask)) == chat
    raw = whole(server, "/api/generate", {"prompt": "Once upon a time", "raw": True, "options": COLD})
    plain = post(server, "/v1/completions", {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 24})[1]
    assert raw["response"] == plain["choices"][0]["text"]


def test_options_are_honoured(server):
    text = whole(server, "/api/chat", {"messages": ASK, "options": COLD})["message"]["content"]
    word = text.split()[3]
    assert whole(server, "/api/chat", {"messages": ASK, "options": COLD | {"stop": [word]}})["message"]["content"] == text.partition(word)[0]
    assert whole(server, "/api/chat", {"messages": ASK, "options": COLD | {"num_predict": 3}})["eval_count"] == 3
    warm = {"messages": ASK, "options": {"temperature": 2, "seed": 5, "num_predict": 12, "num_ctx": 512, "num_gpu": 99}, "keep_alive": -1}
    assert whole(server, "/api/chat", warm)["message"] == whole(server, "/api/chat", warm)["message"]


def test_a_format_holds(server):
    for format, expected in [("json", dict), (SCHEMA, dict)]:
        content = whole(server, "/api/chat", {"messages": ASK, "format": format, "options": {"temperature": 0, "num_predict": 200}})["message"]["content"]
        if format == SCHEMA:
            assert set(json.loads(content)["colors"]) <= {"red", "green", "blue"}
        else:
            assert content.lstrip().startswith("{")
    text = "".join(line["response"] for line in lines(server, "/api/generate", {"prompt": "Colors?", "format": SCHEMA, "options": {"temperature": 0}}))
    assert len(json.loads(text)["colors"]) == 3


def test_tools_are_described_and_their_results_shown(server):
    history = [{"role": "user", "content": "What is the weather in Oslo?"},
               {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]},
               {"role": "tool", "tool_name": "weather", "content": "4 degrees, rain"}]
    bare = whole(server, "/api/chat", {"messages": history, "options": COLD})
    told = whole(server, "/api/chat", {"messages": history, "tools": TOOLS, "options": COLD})
    assert told["prompt_eval_count"] > bare["prompt_eval_count"] + 50
    assert told["message"]["content"] or told["message"]["tool_calls"]
    streamed = lines(server, "/api/chat", {"messages": history, "tools": TOOLS, "options": COLD})
    assert "".join(line["message"]["content"] for line in streamed) == told["message"]["content"]


def test_an_empty_request_says_that_the_model_is_loaded(server):
    assert post(server, "/api/generate", {"model": "smollm2"})[1]["done_reason"] == "load"
    assert post(server, "/api/chat", {"model": "smollm2", "messages": [], "keep_alive": "5m"})[1]["done_reason"] == "load"


def test_embeddings_are_those_of_openais_api(server):
    texts = ["a cat", "a dog"]
    status, answer = post(server, "/api/embed", {"model": "smollm2", "input": texts})
    openai = post(server, "/v1/embeddings", {"input": texts})[1]
    assert status == 200 and answer["embeddings"] == [row["embedding"] for row in openai["data"]]
    assert answer["prompt_eval_count"] == openai["usage"]["prompt_tokens"]
    assert post(server, "/api/embeddings", {"prompt": texts[0]})[1] == {"embedding": answer["embeddings"][0]}
    long = {"input": "word " * 5000}
    assert post(server, "/api/embed", long)[1]["prompt_eval_count"] == 2048
    assert post(server, "/api/embed", long | {"truncate": False})[0] == 400


def test_a_larger_context_is_the_servers_and_is_logged_once(start_server):
    server = start_server("--log-format", "json")
    texts = [("/api/chat", {"messages": ASK, "stream": False}), ("/api/generate", {"prompt": "Hi", "stream": False})]
    for path, body in [*texts, ("/api/embed", {"input": "Hi"})]:
        for size in [32768, 131072]:
            assert post(server, path, body | {"options": {"num_ctx": size, "num_predict": 4, "num_thread": 8}})[0] == 200
    log = server.stop()[1]
    assert log.count("num_ctx") == 1 and "context of 32768 tokens" in log and log.count("num_thread") == 1


def test_the_model_is_described(server):
    [listed] = json.loads(get(server, "/api/tags")[1])["models"]
    assert listed["name"] == "smollm2:latest" and len(listed["digest"]) == 64
    assert listed["details"]["quantization_level"] == "Q4_1" and listed["details"]["format"] == "gguf"
    shown = post(server, "/api/show", {"model": listed["name"]})[1]
    assert shown["model_info"]["llama.context_length"] == 2048 and shown["capabilities"] == listed["capabilities"] == ["completion", "tools"]
    assert "temperature 0.1" in shown["parameters"].splitlines() and "messages" in shown["template"]
    assert json.loads(get(server, "/api/ps")[1])["models"][0]["context_length"] == 2048
    assert json.loads(get(server, "/api/version")[1])["version"].count(".") == 2


@pytest.mark.parametrize("path, body, status, text", [
    ("/api/chat", {"messages": ASK, "options": {"temperature": -1}}, 400, "options.temperature"),
    ("/api/chat", {"messages": [{"role": "user", "content": "word " * 5000}], "options": {"num_ctx": 1 << 20}}, 400, "messages"),
    ("/api/chat", {"messages": ASK, "think": True}, 400, "think"),
    ("/api/chat", {"messages": [ASK[0] | {"images": ["AAAA"]}]}, 400, "images"),
    ("/api/chat", {"model": "llama3", "messages": ASK}, 404, "not found"),
    ("/api/generate", {"prompt": "a", "suffix": "b"}, 400, "suffix"),
    ("/api/generate", {"prompt": "a", "context": [1]}, 400, "context"),
    ("/api/copy", {"source": "llama3", "destination": "mine"}, 404, "not found"),
    ("/api/delete", {"model": "smollm2"}, 405, "DELETE"),
])
def test_errors_have_ollamas_shape(server, path, body, status, text):
    found, answer = post(server, path, body)
    assert found == status and list(answer) == ["error"] and text in answer["error"]


def test_a_client_that_leaves_cancels_its_answer(server):
    connection, response = connect(server, "/api/chat", {"messages": ASK, "options": {"num_predict": 1500, "temperature": 1.5}})
    assert json.loads(response.readline())["done"] is False
    response.close()
    connection.close()
    assert eventually(lambda: metric(server, "num_requests_running") == 0)


# ---- fill in the middle ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def infilling(tmp_path_factory):
    """The model under names of its tokens that make it one that fills in the middle; what it answers is of no use."""
    skip_without_binary_and_model()
    model = MODEL.read_bytes()
    for old, new in [("<issue_closed>", "<|fim_prefix|>"), ("<jupyter_text>", "<|fim_suffix|>"), ("<jupyter_code>", "<|fim_middle|>")]:
        named = [struct.pack("<Q", len(name)) + name.encode() for name in (old, new)]
        assert len(old) == len(new) and model.count(named[0]) == 1
        model = model.replace(*named)
    path = tmp_path_factory.mktemp("infill") / "model.gguf"
    path.write_bytes(model)
    running = Server("--log-level", "warning", "--max-model-len", "1024", model=path)
    yield running
    code, log = running.stop()
    assert code == 0, log


CODE = {"prompt": "def add(a, b):\n    return ", "suffix": "\n\nprint(add(1, 2))\n"}


def test_completions_fill_in_the_middle(infilling):
    def complete(**fields):
        status, answer = post(infilling, "/v1/completions", {"max_tokens": 8, "temperature": 0, **fields})
        assert status == 200, answer
        return answer

    filled = complete(**CODE)
    spelled = f"<|fim_prefix|>{CODE['prompt']}<|fim_suffix|>{CODE['suffix']}<|fim_middle|>"
    assert filled["choices"][0]["text"] == complete(prompt=spelled)["choices"][0]["text"]
    assert filled["usage"]["prompt_tokens"] == complete(prompt=spelled)["usage"]["prompt_tokens"]
    attack = complete(prompt="a<|fim_middle|>b", suffix="c")
    assert attack["usage"]["prompt_tokens"] > complete(prompt="<|fim_prefix|>ab<|fim_suffix|>c<|fim_middle|>")["usage"]["prompt_tokens"] + 3


def test_infill_and_ollama_fill_in_the_middle(infilling):
    filled = post(infilling, "/v1/completions", CODE | {"max_tokens": 8, "temperature": 0})[1]
    text = filled["choices"][0]["text"]
    ask = {"input_prefix": "def add(a, b):\n", "prompt": "    return ", "input_suffix": CODE["suffix"], "n_predict": 8, "temperature": 0}
    status, answer = post(infilling, "/infill", ask)
    assert status == 200 and answer["content"] == text and answer["tokens_evaluated"] == filled["usage"]["prompt_tokens"]
    assert answer["timings"]["predicted_n"] == answer["tokens_predicted"] <= 8
    with_files = post(infilling, "/infill", ask | {"input_extra": [{"filename": "a.py", "text": "x = 1\n"}], "samplers": ["top_k", "infill"]})[1]
    assert with_files["tokens_evaluated"] > answer["tokens_evaluated"]
    assert post(infilling, "/infill", ask | {"n_predict": 0})[1]["content"] == ""
    body = connect(infilling, "/infill", ask | {"stream": True})[1].read().decode()
    events = [json.loads(event.removeprefix("data: ")) for event in body.split("\n\n") if event]
    assert "".join(event["content"] for event in events) == text and [event["stop"] for event in events][-1]
    assert whole(infilling, "/api/generate", CODE | {"options": {"num_predict": 8, "temperature": 0}})["response"] == text
    assert "insert" in post(infilling, "/api/show", {"model": "smollm2"})[1]["capabilities"]


def test_models_without_the_tokens_refuse_to(server):
    status, answer = post(server, "/v1/completions", CODE)
    assert status == 400 and answer["error"]["param"] == "suffix"
    status, answer = post(server, "/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert status == 400 and answer["error"]["param"] == "input_suffix"
