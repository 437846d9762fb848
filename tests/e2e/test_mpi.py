"""Ranks that are processes of MPI: the answers stay, and a rank that is lost is noticed (docs/scale.md)."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from conftest import GOLDEN, QUIRE, Server, quire
from test_server import post

MPIRUN = shutil.which("mpirun")
PLUGIN = QUIRE.with_name("libquire_mpi.so")
pytestmark = pytest.mark.skipif(not (MPIRUN and PLUGIN.exists()), reason="no MPI: apt-get install libopenmpi-dev openmpi-bin, then ./dev build")

# So many processes on few cores, of root in containers.
START = [str(MPIRUN), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def mpi_command(ranks, *arguments, launcher=()):
    return [*START, *launcher, "-n", str(ranks), str(QUIRE), *map(str, arguments)]


def mpi(ranks, *arguments, timeout=120):
    return subprocess.run(mpi_command(ranks, *arguments), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("q4_k")


PROMPT = ["-p", "A prompt", "-n", "24", "--raw", "-s", "3"]


def test_the_answer_is_that_of_one_process(tiny, tmp_path):
    for weights in "q4_k", "bf16":
        model = tiny(weights)
        one = quire("run", "-m", model, *PROMPT)
        assert one.returncode == 0 and one.stdout.strip(), one.stderr
        for ranks, flags in [(2, []), (3, ["-t", "2"]), (3, ["-tp", "3", "--speculative", "ngram"]), (2, ["--pack-cache", tmp_path / "packs"]), (2, ["-pp", "2"]), (2, ["-pp", "2", "--micro-batch-rows", "1", "--pack-cache", tmp_path / "packs"])]:
            several = mpi(ranks, "run", "-m", model, *PROMPT, *flags)
            assert (several.returncode, several.stdout) == (0, one.stdout), several.stderr


def test_under_mpirun_ranks_can_still_be_threads(model):
    done = subprocess.run(mpi_command(2, "run", "-m", model, *PROMPT, "--ranks", "threads", "-tp", "2", "-q"), capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    one = subprocess.run([QUIRE, "run", "-m", model, *PROMPT, "-q"], capture_output=True, check=True)
    # Two programs, each with its answer; their pieces come mixed.
    assert (done.returncode, sorted(done.stdout)) == (0, sorted(2 * one.stdout)), done.stderr


def test_a_recording_is_replayed(model, tmp_path):
    record = tmp_path / "run.jsonl"
    assert quire("run", "-m", model, *PROMPT, "--record", record).returncode == 0
    done = mpi(3, "replay", record)
    assert done.returncode == 0, done.stderr
    assert "equal bit by bit" in done.stdout and "3 ranks" in done.stdout
    # And one that several processes have recorded.
    assert mpi(2, "run", "-m", model, *PROMPT, "--record", record).returncode == 0
    assert "equal bit by bit" in quire("replay", record).stdout


# Models of tests/golden/data have no vocabulary, so the prompt is tokens.
@pytest.mark.parametrize("kind", ["mistral", "gemma3_text", "deepseek_v3", "gpt_oss", "qwen3_next", "granitemoehybrid"])
def test_every_kind_of_layer_is_replayed(kind, tmp_path):
    golden, record = GOLDEN / "models" / kind, tmp_path / "run.jsonl"
    server = Server("--record", record, model=golden, name="golden")
    status, answer = post(server, "/v1/completions", {"model": "golden", "prompt": list(range(3, 40)), "max_tokens": 8, "ignore_eos": True})
    assert status == 200, answer
    assert server.stop()[0] == 0
    for ranks in 2, 3:
        done = mpi(ranks, "replay", record, "-t", "1")
        assert done.returncode == 0 and f"{ranks} ranks" in done.stdout, done.stderr


def test_bench_says_what_ranks_exchange(model):
    done = mpi(2, "bench", "-m", model, "-p", "16", "-n", "4", "-r", "1", "--json")
    assert done.returncode == 0, done.stderr
    for result in json.loads(done.stdout)["results"]:
        assert result["gathers_per_step"] > 0 and result["gathered_bytes_per_step"] > 0 and 0 < result["gather_share"] < 1


def test_ranks_that_differ_are_refused(model, tiny, tmp_path):
    (other := tmp_path / "other").mkdir()
    program = shutil.copy(QUIRE, other)
    with open(program, "ab") as file:
        file.write(b"\0")
    (other / PLUGIN.name).symlink_to(PLUGIN)
    run = ["run", *PROMPT]
    for second, what in [
        ([QUIRE, *run, "-m", model, "--kernels", "reference"], "another kernels than rank 0: reference instead of"),
        ([QUIRE, *run, "-m", tiny("bf16")], "another model than rank 0"),
        ([QUIRE, *run, "-m", model, "--kv-cache-dtype", "int8"], "another KV cache than rank 0"),
        ([program, *run, "-m", model], "another program than rank 0"),
    ]:
        command = [*mpi_command(1, *run, "-m", model), ":", "-n", "1", *map(str, second)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        assert done.returncode == 1 and re.search(rf"quire: rank 1 \(host \S+, process \d+\) has {what}", done.stderr), done.stderr


def test_what_cannot_be_done_is_refused(model):
    for command, flags, code, message in [
        ("run", ["-tp", "3"], 2, "--tensor-parallel-size: is 3, but there are 2 processes"),
        ("run", ["-pp", "3"], 2, "--pipeline-parallel-size: is 3, but there are 2 processes; give 2"),
        ("run", ["--ranks", "shared"], 2, "--ranks"),
        ("bench", ["--adapters", "2"], 1, "--quality and --adapters work in one process only"),
        ("serve", ["-m", f"b={model}"], 2, "several processes (--ranks mpi) serve one"),
    ]:
        prompt = PROMPT if command == "run" else []
        done = mpi(2, command, "-m", model, *prompt, *flags)
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    alone = quire("run", "-m", model, *PROMPT, "--ranks", "mpi")
    assert alone.returncode == 1 and "--ranks mpi needs several processes" in alone.stderr


class Group:
    """`mpirun quire serve`, whose ranks are children of mpirun."""

    def __init__(self, ranks, model, *flags, launcher=()):
        command = mpi_command(ranks, "serve", "-m", model, "--port", "0", "--served-model-name", "tiny", "-t", "1", *flags, launcher=launcher)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"no URL in {line!r}; stderr: {self.process.stderr.read()}"
        self.url = found.group()
        self.port = int(re.search(r":(\d+)", self.url.removeprefix("http:")).group(1))
        self.pids = {}
        for pid in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            if rank := re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", environment):
                self.pids[int(rank.group(1))] = int(pid)
        assert sorted(self.pids) == list(range(ranks))

    def complete(self, tokens=400, timeout=60):
        """Status, headers, body, and when it was answered."""
        body = {"model": "tiny", "prompt": "A prompt", "max_tokens": tokens, "seed": 3, "ignore_eos": True}
        request = urllib.request.Request(self.url + "/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.headers, json.load(answer), time.monotonic()
        except urllib.error.HTTPError as e:
            return e.code, e.headers, json.load(e), time.monotonic()

    def load(self):
        """Sends requests, one after the other, as long as they are answered. Returns the first failure; None: nobody listens any more."""
        try:
            while (answer := self.complete())[0] == 200:
                pass
            return answer
        except (urllib.error.URLError, ConnectionError):
            return None

    def end(self, timeout=60):
        """Exit code and log of a group that ends by itself, or when it is told."""
        log = self.process.communicate(timeout=timeout)[1]
        return self.process.returncode, log


@contextlib.contextmanager
def group(*arguments, **options):
    running = Group(*arguments, **options)
    try:
        yield running
    finally:
        for pid in [*running.pids.values(), running.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.process.wait()


def test_adapters_and_control_vectors_of_the_start(model):
    llama = GOLDEN / "models/llama"
    # Decomposed weights (DoRA) are computed with the model's, of which a stage has some layers.
    flags = ["--lora", f"one={GOLDEN / 'adapters/llama'}", "--lora", f"two={GOLDEN / 'adapters/llama_dora'}", "--control-vector-scaled", f"{GOLDEN / 'control-vectors/first.gguf'}:4"]
    body = {"prompt": list(range(3, 30)), "max_tokens": 12, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
    names = ["tiny", "one", "two"]
    server = Server(*flags, model=llama, name="tiny")
    wanted = [post(server, "/v1/completions", body | {"model": name})[1]["choices"][0]["token_ids"] for name in names]
    server.stop()
    assert wanted[0] != wanted[1] != wanted[2] != wanted[0]
    for more in [], ["-pp", "2"]:
        with group(2, llama, *flags, *more) as running:
            got = [post(running, "/v1/completions", body | {"model": name})[1]["choices"][0]["token_ids"] for name in names]
            assert got == wanted, more
    with group(2, llama, "--lora-memory", "1MiB") as running:
        status, answer = post(running, "/v1/load_lora_adapter", {"lora_name": "three", "lora_path": str(GOLDEN / "adapters/llama")})
        assert status == 400 and "cannot be loaded later" in answer["error"]["message"]


# mpirun ends the others a second after one has died; they need less.
@pytest.mark.parametrize("ranks, flags", [(3, []), (2, ["-pp", "2", "--rank-timeout", "2"])], ids=["ranks", "stages"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_lost_rank_ends_requests_with_503(model, how, ranks, flags):
    with group(ranks, model, *flags) as running, concurrent.futures.ThreadPoolExecutor() as clients:
        assert running.complete(8)[0] == 200
        answers = [clients.submit(running.load) for _ in range(4)]
        time.sleep(0.5)
        os.kill(running.pids[ranks - 1], how)
        lost = time.monotonic()
        code, log = running.end()
        failures = [failure for answer in answers if (failure := answer.result())]
        assert failures
        for status, headers, body, when in failures:
            assert status == 503 and headers["Retry-After"] == "5", (status, body)
            assert body["error"]["code"] == "engine_lost" and f"rank {ranks - 1} (" in body["error"]["message"], body
            assert how == signal.SIGKILL or "which is stopped" in body["error"]["message"], body
            assert when - lost < 3  # 2 s, and some for a machine of few cores
        assert code != 0
        assert f"rank {ranks - 1} (" in log


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_lost_rank_is_noticed_without_requests(model, how):
    with group(2, model) as running:
        os.kill(running.pids[1], how)
        began = time.monotonic()
        code, log = running.end()
        assert code != 0 and "rank 1 (" in log
        assert time.monotonic() - began < 6


def test_without_rank_0_the_others_end(model):
    with group(3, model) as running:
        os.kill(running.pids[0], signal.SIGKILL)
        assert running.end(timeout=20)[0] != 0
        assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in running.pids.values())  # which one that waits to be reaped has not


def test_a_group_that_is_started_again_goes_on(model, tmp_path):
    before = None
    for last in False, True:
        with group(2, model, "--pack-cache", tmp_path / "packs") as running:
            status, _, body, _ = running.complete(32)
            assert status == 200
            before = before or body["choices"][0]["text"]
            assert body["choices"][0]["text"] == before
            if last:
                os.kill(running.pids[0], signal.SIGTERM)
                code, log = running.end()
                assert code == 0, log
            else:
                os.kill(running.pids[1], signal.SIGKILL)
                assert running.end()[0] != 0


# mpirun sends SIGTERM to all ranks; those other than rank 0 leave the end to it.
def test_mpirun_can_be_asked_to_end(model):
    with group(3, model, launcher=["--mca", "odls_base_sigkill_timeout", "4"]) as running, concurrent.futures.ThreadPoolExecutor() as clients:
        answer = clients.submit(running.complete, 100)
        time.sleep(0.2)
        os.kill(running.process.pid, signal.SIGTERM)
        assert answer.result()[0] == 200
        running.end()
