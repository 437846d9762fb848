"""quire batch, /v1/files and /v1/batches: whole, continued after kills, and with what is wrong."""

import json
import os
import random
import signal
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from conftest import GOLDEN, QUIRE, Server, eventually, quire, skip_without_binary

MODEL = GOLDEN / "models/qwen2"
LIMITS = ["--memory", "800MiB", "--max-model-len", "256"]


def line(custom_id, prompt=None, url="/v1/completions", **body):
    draw = random.Random(custom_id)
    prompt = prompt or [draw.randrange(3, 200) for _ in range(draw.randrange(1, 40))]
    field = "input" if url == "/v1/embeddings" else "prompt"
    limit = {} if url == "/v1/embeddings" else {"max_tokens": 12, "temperature": 0, "return_token_ids": True}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "m", field: prompt, **limit, **body}})


def batch(folder, text, *flags, out="out.jsonl", **options):
    (folder / "in.jsonl").write_text(text)
    return quire("batch", folder / "in.jsonl", folder / out, "-m", MODEL, "--served-model-name", "m", *LIMITS, *flags, **options)


def read(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def tokens_of(result):
    assert result["response"]["status_code"] == 200, result
    return result["response"]["body"]["choices"][0]["token_ids"]


@pytest.fixture(scope="module")
def alone():
    """Answers of a server, by custom_id, one request after the other."""
    skip_without_binary()
    server = Server(*LIMITS, model=MODEL, name="m")
    answers = {}
    for i in range(60):
        request = json.loads(line(f"r{i}"))
        sent = urllib.request.Request(server.base + request["url"], json.dumps(request["body"]).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(sent, timeout=60) as answer:
            answers[f"r{i}"] = json.load(answer)["choices"][0]["token_ids"]
    assert server.stop()[0] == 0
    return answers


def test_answers_in_the_order_of_the_input(tmp_path, alone):
    done = batch(tmp_path, "".join(line(name) + "\n" for name in alone))
    assert done.returncode == 0, done.stderr
    assert "60 of 60 requests are answered" in done.stderr
    results = read(tmp_path / "out.jsonl")
    assert [result["custom_id"] for result in results] == list(alone)
    assert {result["custom_id"]: tokens_of(result) for result in results} == alone
    assert len({result["id"] for result in results}) == 60
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_wrong_lines_do_not_stop_the_rest(tmp_path, alone):
    lines = [
        line("r1"),
        "nonsense",
        "",
        line("r1"),
        "[" * 100_000,
        json.dumps({"custom_id": "x", "method": "POST", "url": "/v1/nowhere", "body": {}}),
        line("streams", stream=True),
        line("hot", temperature=-1),
        line("r2") + "\r",
        json.dumps({"custom_id": "big", "body": "x" * (33 << 20)}),
        line("e", url="/v1/embeddings"),
        json.dumps({"custom_id": "other", "method": "POST", "url": "/v1/completions", "body": {"model": "other", "prompt": "x"}}),
    ]
    done = batch(tmp_path, "\n".join(lines))
    assert done.returncode == 1
    assert "requests failed" in done.stderr
    results = read(tmp_path / "out.jsonl")
    assert len(results) == 11
    assert tokens_of(results[0]) == alone["r1"] and tokens_of(results[7]) == alone["r2"]
    codes = [result["error"]["code"] if result["error"] else result["response"]["status_code"] for result in results]
    assert codes == [200, "invalid_json_line", "duplicate_custom_id", "invalid_json_line", "invalid_url", "invalid_request", 400, 200, "line_too_long", 200, 404]
    assert len(results[9]["response"]["body"]["data"][0]["embedding"]) > 1
    assert results[1]["error"]["message"].startswith("line 2: ")


def test_standard_input_and_output(tmp_path, alone):
    text = "".join(line(name) + "\n" for name in list(alone)[:5])
    done = quire("batch", "-", "-", "-m", MODEL, "--served-model-name", "*", *LIMITS, input=text)
    assert done.returncode == 0, done.stderr
    results = {result["custom_id"]: tokens_of(result) for result in map(json.loads, done.stdout.splitlines())}
    assert results == {name: alone[name] for name in list(alone)[:5]}


@pytest.mark.parametrize("order", ["input", "completion"])
def test_a_killed_run_is_continued(tmp_path, alone, order):
    (tmp_path / "in.jsonl").write_text("".join(line(name) + "\n" for name in alone))
    command = [QUIRE, "batch", tmp_path / "in.jsonl", tmp_path / "out.jsonl", "-m", MODEL, "--served-model-name", "m", *LIMITS, "--order", order]
    partial = tmp_path / "out.jsonl.partial/output"
    kept = 0
    for kill in (signal.SIGKILL, signal.SIGINT):
        process = subprocess.Popen([*command, "--max-num-seqs", "1"], stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: process.poll() is not None or partial.exists() and partial.read_bytes().count(b"\n") > kept + 2, 60)
        process.send_signal(kill)
        process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert not (tmp_path / "out.jsonl").exists()
        assert partial.read_bytes().count(b"\n") >= kept
        kept = partial.read_bytes().count(b"\n")
    if partial.exists():
        with partial.open("ab") as file:
            file.write(b'{"id":"batch_req_half')
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert f"which has {kept} results" in done.stderr
    results = read(tmp_path / "out.jsonl")
    assert {result["custom_id"]: tokens_of(result) for result in results} == alone
    assert len(results) == 60
    if order == "input":
        assert [result["custom_id"] for result in results] == list(alone)


def test_results_of_another_order_are_not_mixed_in(tmp_path, alone):
    text = "".join(line(name) + "\n" for name in alone)
    (tmp_path / "out.jsonl.partial").mkdir()
    done = batch(tmp_path, text)
    assert done.returncode == 0, "an empty folder is taken over: " + done.stderr
    done = batch(tmp_path, text)
    assert done.returncode == 1 and "--force" in done.stderr
    other = tmp_path / "other.jsonl.partial"
    other.mkdir()
    (other / "journal.jsonl").write_text('{"quire_journal":1,"order":{"the model":"another"}}\n')
    done = batch(tmp_path, text, out="other.jsonl")
    assert done.returncode == 1 and "the model was another" in done.stderr
    assert not (tmp_path / "other.jsonl").exists()
    assert batch(tmp_path, text, "--force", out="other.jsonl").returncode == 0


def test_a_changed_line_is_answered_anew(tmp_path, alone):
    names = list(alone)[:3]
    command = [QUIRE, "batch", "-", tmp_path / "out.jsonl", "-m", MODEL, "--served-model-name", "m", *LIMITS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    process.stdin.write("".join(line(name) + "\n" for name in names[:2]))
    process.stdin.flush()
    partial = tmp_path / "out.jsonl.partial/output"
    # The input has not ended; what was read so far is answered all the same.
    assert eventually(lambda: partial.exists() and partial.read_bytes().count(b"\n") == 2, 60)
    process.kill()
    process.wait()
    lines = [line(names[0], max_tokens=3), line(names[1]), line(names[2])]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "which has 2 results" in done.stderr, done.stderr
    results = read(tmp_path / "out.jsonl")
    assert [result["custom_id"] for result in results] == names
    assert results[0]["response"]["body"]["usage"]["completion_tokens"] == 3
    assert tokens_of(results[1]) == alone[names[1]]


def test_bad_command_lines_and_files(tmp_path):
    skip_without_binary()
    assert quire("batch").returncode == 2
    assert quire("batch", "in", "out", "-m", MODEL, "--order", "random").returncode == 2
    done = quire("batch", tmp_path / "none", tmp_path / "out", "-m", MODEL)
    assert done.returncode == 1 and "No such file" in done.stderr
    done = quire("batch", tmp_path, tmp_path / "out", "-m", MODEL)
    assert done.returncode == 1 and "neither a file nor a pipe" in done.stderr
    (tmp_path / "in").write_text(line("a"))
    done = quire("batch", tmp_path / "in", tmp_path / "in", "-m", MODEL, "--force")
    assert done.returncode == 1 and "is the input" in done.stderr
    assert (tmp_path / "in").read_text() == line("a")
    done = quire("batch", tmp_path / "in", tmp_path / "no/folder/out", "-m", MODEL)
    assert done.returncode == 1 and "cannot be written" in done.stderr
    done = quire("batch", tmp_path / "in", tmp_path / "out", "-m", tmp_path / "no-model")
    assert done.returncode == 1


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs to mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_an_error_and_the_rest_follows(tmp_path, small_disk, alone):
    text = "".join(line(name) + "\n" for name in alone)
    (tmp_path / "in.jsonl").write_text(text)
    command = ["batch", tmp_path / "in.jsonl", small_disk / "out", "-m", MODEL, "--served-model-name", "m", "--order", "completion", *LIMITS]
    (small_disk / "ballast").write_bytes(b"x" * (36 << 10))
    done = quire(*command)
    assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
    assert not (small_disk / "out").exists()
    (small_disk / "ballast").unlink()
    done = quire(*command)
    assert done.returncode == 0, done.stderr
    assert {result["custom_id"]: tokens_of(result) for result in read(small_disk / "out")} == alone
