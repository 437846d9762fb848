"""Replicas that share a prefix cache: over a folder, and over a Redis server."""

import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest
from conftest import MODEL, Server, eventually, needs_model, quire, skip_without_binary_and_model

SENTENCE = "You are a careful assistant who answers in one short sentence. "
PREFIX = SENTENCE * 170  # about 2,000 tokens
REDIS = shutil.which("redis-server") or shutil.which("valkey-server")


class Redis:
    """A server without persistence, on the same port after each start()."""

    def __init__(self, folder, *flags):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.command = [REDIS, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *flags]
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        assert eventually(self.accepts)

    def accepts(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def redis(tmp_path):
    if not REDIS:
        pytest.skip("no redis-server: apt-get install redis-server")
    server = Redis(tmp_path)
    yield server
    server.kill()


@pytest.fixture(params=["folder", "redis"])
def cache(request, tmp_path):
    """The URL of a shared cache."""
    return (tmp_path / "shared").as_uri() if request.param == "folder" else request.getfixturevalue("redis").url


@pytest.fixture
def replica():
    """Starts replicas, and ends them after the test."""
    skip_without_binary_and_model()
    started = []

    def start(*flags, tokens=4096, cache="400MB"):
        started.append(Server("--max-model-len", str(tokens), "--kv-cache-size", cache, "--log-level", "warning", *flags))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


def ask(server, text, tokens=12):
    body = {"model": "smollm2", "prompt": text, "max_tokens": tokens, "temperature": 0}
    answer = httpx.post(server.url + "/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    answer = answer.json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def metric(server, name):
    found = re.search(rf"^quire:{name}(?:{{.*}})? (\S+)$", httpx.get(server.base + "/metrics").text, re.M)
    assert found, name
    return float(found[1])


def has_written(server, pages=120):
    """SmolLM2's pages take 360 KB."""
    return eventually(lambda: metric(server, "shared_cache_written_bytes_total") > pages * 360_000, seconds=60)


def test_a_prefix_computed_by_one_replica_is_a_hit_on_another(replica, cache):
    question = PREFIX + "What is the sea?"
    right, found = ask(replica("--no-prefix-cache"), question)
    assert found == 0
    one, other = replica("--shared-cache", cache), replica("--shared-cache", cache)
    # Prefill and decode on different replicas: one computes the prompt, the other answers.
    _, found = ask(one, question, tokens=1)
    assert found == 0
    assert has_written(one)
    one.process.send_signal(signal.SIGKILL)
    assert metric(other, "shared_cache_hits_total") == 0
    text, found = ask(other, question)
    assert text == right
    assert found > 1900
    assert metric(other, "shared_cache_hits_total") > 115
    assert metric(other, "shared_cache_errors_total") == 0
    _, found = ask(other, "Another beginning. " + question)
    assert found == 0
    assert metric(other, "shared_cache_misses_total") > 115
    # Pages of other bits are not found.
    third = replica("--shared-cache", cache, "--kv-cache-dtype", "f16")
    _, found = ask(third, question)
    assert found == 0
    for server in (other, third):
        code, log = server.stop()
        assert code == 0 and log == "", log


def test_requests_survive_a_redis_that_is_killed_and_started_again(replica, redis):
    prefixes = [f"{i}. " + SENTENCE * 60 for i in range(4)]
    plain = replica("--no-prefix-cache")
    right = {text: ask(plain, text)[0] for text in prefixes}
    replicas = [replica("--shared-cache", redis.url, tokens=1024, cache="60MB") for _ in range(2)]
    ends, wrong, slowest = threading.Event(), [], 0.0

    def load(seed):
        nonlocal slowest
        i = seed
        while not ends.is_set():
            i += 1
            text = prefixes[i % len(prefixes)]
            start = time.monotonic()
            try:
                answer, _ = ask(replicas[i // 2 % 2], text)
                if answer != right[text]:
                    wrong.append(answer)
            except Exception as failure:  # noqa: BLE001: every failure is one
                wrong.append(failure)
            slowest = max(slowest, time.monotonic() - start)

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            time.sleep(2)
            redis.kill()
            time.sleep(2)
            redis.start()
        redis.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        redis.process.send_signal(signal.SIGCONT)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert slowest < 60
    # The cache works again.
    fresh = "Once more. " + SENTENCE * 60
    assert eventually(lambda: metric(replicas[0], "shared_cache_errors_total") > 0)

    def is_shared():
        nonlocal fresh
        fresh = "Once more. " + fresh
        written = metric(replicas[0], "shared_cache_written_bytes_total")
        ask(replicas[0], fresh)
        return eventually(lambda: metric(replicas[0], "shared_cache_written_bytes_total") > written + 40 * 360_000, seconds=3) and ask(replicas[1], fresh)[1] > 600

    assert eventually(is_shared, seconds=60)
    for server in replicas:
        code, log = server.stop()
        assert code == 0, log
        assert 0 < log.count("its pages are computed instead") <= 2, log


def test_a_replica_uses_a_redis_that_starts_after_it(replica, redis):
    redis.kill()
    one, other = (replica("--shared-cache", redis.url) for _ in range(2))
    assert ask(one, PREFIX)[1] == 0
    redis.start()
    for i in range(20):  # each replica tries again every 5 s
        question = f"{i}. " + PREFIX
        ask(one, question)
        if ask(other, question)[1] > 1900:
            break
        time.sleep(1)
    else:
        pytest.fail("no hit")


def test_a_password_is_never_shown(replica, tmp_path):
    if not REDIS:
        pytest.skip("no redis-server: apt-get install redis-server")
    redis = Redis(tmp_path, "--requirepass", "secret")
    try:
        server = replica("--shared-cache", redis.url.replace("//", "//:wrong~secret@"))
        assert ask(server, PREFIX)[1] == 0
        pages = httpx.get(server.base + "/metrics").text + httpx.get(server.base + "/props").text
        code, log = server.stop()
        assert code == 0 and "logging in failed" in log and "secret" not in log + pages, log
        server = replica("--shared-cache", redis.url.replace("//", "//:secret@"))
        ask(server, PREFIX)
        assert has_written(server, pages=100)
        assert server.stop() == (0, "")
    finally:
        redis.kill()


@needs_model
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shared-cache", "s3://bucket/secret"], "a shared cache is file:///FOLDER"),
        (["--shared-cache", "redis://user:secret"], "the Redis URL has a port that is not a number"),
        (["--shared-cache", "file://relative"], "with three slashes"),
    ],
)
def test_wrong_urls_are_refused(flags, message):
    done = quire("serve", "-m", MODEL, *flags)
    assert done.returncode == 2 and message in done.stderr and "secret" not in done.stderr, done.stderr


@needs_model
def test_what_cannot_work_is_refused(tmp_path):
    done = quire("serve", "-m", MODEL, "--shared-cache", "file:///tmp/x", "--cache-dir", tmp_path)
    assert done.returncode == 2 and "--cache-dir cannot be combined with --shared-cache" in done.stderr, done.stderr
    done = quire("run", "-m", MODEL, "-p", "A", "-n", "1", "--shared-cache", "file:///dev/null/x")
    assert done.returncode == 1 and "choose" in done.stderr and "--shared-cache" in done.stderr, done.stderr
