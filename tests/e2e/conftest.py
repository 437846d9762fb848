"""The real server on the real model, once for all tests."""

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


class Server:
    """A `quire serve` of its own; `url` ends in /v1."""

    def __init__(self, *flags):
        command = [str(QUIRE), "serve", "-m", str(MODEL), "--port", "0", "--served-model-name", "smollm2", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        assert found, f"no URL in {line!r}; stderr: {self.process.stderr.read()}"
        self.url = found.group()
        self.base = self.url.removesuffix("/v1")
        self.port = int(self.base.rsplit(":", 1)[1])

    def stop(self, timeout=60):
        """SIGTERM; the exit code and what was logged."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        log = self.process.communicate(timeout=timeout)[1]
        return self.process.returncode, log


def skip_without_binary_and_model():
    for what, path in (("binary", QUIRE), ("model", MODEL)):
        if not path.exists():
            pytest.skip(f"no {what} at {path}")


@pytest.fixture(scope="session")
def server():
    skip_without_binary_and_model()
    # The context is cut to what the tests need, so that they run on small machines.
    running = Server("--max-model-len", "2048", "--log-level", "warning")
    yield running
    code, log = running.stop()
    assert code == 0, log


@pytest.fixture
def start_server():
    """Starts further servers, ends them after the test."""
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
