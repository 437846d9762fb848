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


# ---- the server ---------------------------------------------------------------------------------------------------------


def serve(folder, *flags):
    skip_without_binary()
    return Server(*LIMITS, "--files-dir", str(folder), *flags, model=MODEL, name="m")


def client_of(server, key="none"):
    openai = pytest.importorskip("openai")
    return openai.OpenAI(base_url=server.url, api_key=key, max_retries=0, timeout=60)


def wait_for(client, batch_id, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = client.batches.retrieve(batch_id)
        if found.status in ("completed", "failed", "cancelled", "expired"):
            return found
        time.sleep(0.1)
    raise AssertionError(found)


def answers_of(client, found):
    content = client.files.content(found.output_file_id).text
    return {result["custom_id"]: tokens_of(result) for result in map(json.loads, content.splitlines())}


def test_openais_client(tmp_path, alone):
    server = serve(tmp_path / "files")
    client = client_of(server)
    (tmp_path / "in.jsonl").write_text("".join(line(name) + "\n" for name in alone) + line("wrong", temperature=-1))
    with (tmp_path / "in.jsonl").open("rb") as file:
        sent = client.files.create(file=file, purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert sent.filename == "in.jsonl" and sent.bytes == (tmp_path / "in.jsonl").stat().st_size
    assert sent.expires_at == sent.created_at + 3600
    made = client.batches.create(input_file_id=sent.id, endpoint="/v1/completions", completion_window="24h", metadata={"who": "me"})
    assert made.status == "validating" and made.metadata == {"who": "me"}
    found = wait_for(client, made.id)
    assert found.status == "completed"
    assert (found.request_counts.total, found.request_counts.completed, found.request_counts.failed) == (61, 60, 1)
    assert answers_of(client, found) == alone
    failure = json.loads(client.files.content(found.error_file_id).text)
    assert failure["custom_id"] == "wrong" and failure["response"]["status_code"] == 400
    assert [one.id for one in client.batches.list(limit=1)] == [made.id]
    assert len(list(client.files.list(limit=2))) == 3
    assert client.files.retrieve(sent.id).id == sent.id
    assert client.files.delete(sent.id).deleted
    with pytest.raises(Exception, match="there is no file"):
        client.files.retrieve(sent.id)
    code, log = server.stop()
    assert code == 0, log


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_batches_survive_the_server(tmp_path, alone, kill):
    text = "".join(line(f"{name}-{i}", prompt=json.loads(line(name))["body"]["prompt"]) + "\n" for i in range(5) for name in alone)
    server = serve(tmp_path / "files", "--max-num-seqs", "1")
    client = client_of(server)
    sent = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    made = client.batches.create(input_file_id=sent.id, endpoint="/v1/completions", completion_window="24h")
    for round_ in range(2):
        done = client.batches.retrieve(made.id).request_counts.completed
        assert eventually(lambda: client.batches.retrieve(made.id).request_counts.completed > done + 5, 60)
        before = client.batches.retrieve(made.id).request_counts.completed
        server.process.send_signal(kill)
        server.process.communicate(timeout=60)
        assert server.process.returncode == (-kill if kill == signal.SIGKILL else 0)
        server = serve(tmp_path / "files", *([] if round_ else ["--max-num-seqs", "1"]))
        client = client_of(server)
        assert eventually(lambda: client.batches.retrieve(made.id).request_counts.completed >= before, 20), "what is answered stays"
    found = wait_for(client, made.id)
    assert found.status == "completed" and found.request_counts.completed == 300
    answers = answers_of(client, found)
    assert answers == {f"{name}-{i}": alone[name] for i in range(5) for name in alone}
    assert server.stop()[0] == 0


def test_a_folder_has_one_server(tmp_path):
    server = serve(tmp_path / "files")
    second = quire("serve", "-m", MODEL, "--port", "0", "--files-dir", tmp_path / "files", *LIMITS)
    assert second.returncode == 1 and "another server uses this folder" in second.stderr
    assert server.stop()[0] == 0


def test_large_files_do_not_enter_memory(tmp_path):
    server = serve(tmp_path / "files", "--max-file-size", "1GB")
    client = client_of(server)

    def peak():
        status = open(f"/proc/{server.process.pid}/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    before = peak()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(400 << 20)  # a line of zeros
    with (tmp_path / "large").open("rb") as file:
        sent = client.files.create(file=file, purpose="batch")
    assert sent.bytes == 400 << 20
    made = client.batches.create(input_file_id=sent.id, endpoint="/v1/completions", completion_window="24h")
    found = wait_for(client, made.id)
    assert found.status == "failed" and found.errors.data[0].code == "line_too_long"
    with client.files.with_streaming_response.content(sent.id) as answer:
        assert sum(len(piece) for piece in answer.iter_bytes(1 << 20)) == 400 << 20
    assert peak() - before < 100 << 20
    assert server.stop()[0] == 0


def test_chats_are_answered_while_a_batch_runs(tmp_path):
    server = serve(tmp_path / "files", "--max-num-seqs", "4")
    client = client_of(server)
    text = "".join(line(f"r{i}", max_tokens=100, ignore_eos=True) + "\n" for i in range(400))
    sent = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    made = client.batches.create(input_file_id=sent.id, endpoint="/v1/completions", completion_window="24h")
    assert eventually(lambda: client.batches.retrieve(made.id).status == "in_progress", 60)
    for i in range(5):
        assert client.completions.create(model="m", prompt=[5, 6], max_tokens=4).usage.completion_tokens > 0
    assert client.batches.cancel(made.id).status == "cancelling"
    assert wait_for(client, made.id).status == "cancelled"
    assert server.stop()[0] == 0


def test_managing_models_needs_an_admin_key():
    skip_without_binary()

    def load(server, key):
        sent = urllib.request.Request(server.base + "/models/load", b'{"model": "m"}', {"Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(sent, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    server = Server(*LIMITS, "--api-key", "sk-user", "--admin-key", "sk-admin", model=MODEL, name="m")
    assert [load(server, key) for key in ("sk-user", "sk-admin", "sk-none")] == [403, 200, 401]
    assert server.stop()[0] == 0
