"""The real program: one server with the real model for all tests, and tiny models."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUIRE = pathlib.Path(os.environ.get("QUIRE", ROOT / "build/release/quire"))
MODELS = pathlib.Path(os.environ.get("QUIRE_MODELS", pathlib.Path.home() / ".cache/quire/models"))
MODEL = pathlib.Path(os.environ.get("QUIRE_TEST_MODEL", MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"))
os.environ["QUIRE_TUNE"] = "off"  # servers start in less time, and leave the user's file alone


GOLDEN = ROOT / "tests/golden/data"  # reference models and files

needs_model = pytest.mark.skipif(not MODEL.exists(), reason=f"no model at {MODEL}: ./dev fetch")


class Server:
    """A `quire serve` of its own; `url` ends in /v1. models: NAME=MODEL, in place of `model` and `name`."""

    def __init__(self, *flags, model=MODEL, port=0, name="smollm2", models=None):
        served = [part for one in models for part in ("-m", one)] if models is not None else ["-m", str(model), "--served-model-name", name]
        command = [str(QUIRE), "serve", *served, "--port", str(port), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        assert found, f"no URL in {line!r}; stderr: {self.process.stderr.read()}"
        self.url = found.group()
        self.base = self.url.removesuffix("/v1")
        self.port = int(self.base.rsplit(":", 1)[1])

    def stop(self, timeout=60):
        """Sends SIGTERM; returns the exit code and the log."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        log = self.process.communicate(timeout=timeout)[1]
        return self.process.returncode, log


def skip_without_binary():
    if not QUIRE.exists():
        pytest.skip(f"no binary at {QUIRE}: ./dev build")


def skip_without_binary_and_model():
    skip_without_binary()
    if not MODEL.exists():
        pytest.skip(f"no model at {MODEL}: ./dev fetch")


def quire(*arguments, timeout=120, **options):
    """Runs the program to its end."""
    skip_without_binary()
    return subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options)


def expect_interrupt_leaves_nothing(folder, *arguments):
    """Ctrl-C, once the program has begun to write to the empty folder."""
    skip_without_binary()
    process = subprocess.Popen([QUIRE, *map(str, arguments)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not any(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert list(folder.iterdir()) == []


def quire_json(*arguments):
    """The JSON that it prints with --json."""
    done = quire(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Makes a model of random weights: tiny("q4_k") returns its path."""
    folder = tmp_path_factory.mktemp("tiny")

    def make(weights):
        path = folder / f"{weights}.gguf"
        if not path.exists():
            done = quire("synth", "--shape", "tiny", "--type", weights, "-o", path)
            assert done.returncode == 0, done.stderr
        return path

    return make


@contextlib.contextmanager
def served(*flags):
    """A server, which must exit with code 0."""
    skip_without_binary_and_model()
    running = Server("--log-level", "warning", *flags)
    try:
        yield running
    finally:
        code, log = running.stop()
    assert code == 0, log


@pytest.fixture(scope="session")
def server():
    # A short context is enough for the tests and fits small machines.
    with served("--max-model-len", "2048") as running:
        yield running


@pytest.fixture
def start_server():
    """Starts further servers and ends them after the test."""
    skip_without_binary_and_model()
    started = []

    def start(*flags):
        started.append(Server("--max-model-len", "1024", *flags))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


@pytest.fixture(scope="session")
def client(server):
    from openai import OpenAI

    return OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def eventually(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
