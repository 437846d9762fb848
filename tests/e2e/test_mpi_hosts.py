"""Ranks on several hosts, which are network namespaces (scripts/hosts.py)."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import QUIRE, ROOT, quire

sys.path.insert(0, str(ROOT / "scripts"))
from hosts import MPIRUN, Hosts, can_make_hosts, can_slow_links, ip  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not (MPIRUN and QUIRE.with_name("libquire_mpi.so").exists()), reason="no MPI: apt-get install libopenmpi-dev openmpi-bin, then ./dev build"),
    pytest.mark.skipif(not can_make_hosts(), reason="this user may not make network namespaces"),
]


@pytest.fixture
def hosts(tmp_path):
    made = Hosts(3, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("q4_k")


PROMPT = ["-p", "A prompt", "-n", "24", "--raw", "-s", "3"]


def expect_the_answer_of_one_process(hosts, model):
    one = quire("run", "-m", model, *PROMPT)
    several = subprocess.run(hosts.mpirun(QUIRE, "run", "-m", model, *PROMPT, "-t", "1"), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert (several.returncode, several.stdout) == (0, one.stdout), several.stderr


def test_the_answer_is_that_of_one_process(hosts, model):
    expect_the_answer_of_one_process(hosts, model)


@pytest.mark.skipif(not can_slow_links(), reason="this user may not make TAP devices")
def test_a_slow_network_changes_no_answer(hosts, model):
    hosts.slow(1, delay=0.001, gbits=0.1)
    refused = "import socket, time; began = time.monotonic(); socket.socket().connect_ex(('10.99.0.2', 9)); print(time.monotonic() - began)"
    seconds = subprocess.run(["ip", "netns", "exec", hosts.names[0], sys.executable, "-c", refused], capture_output=True, text=True, check=True)
    assert float(seconds.stdout) >= 0.002, "there and back"
    expect_the_answer_of_one_process(hosts, model)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def complete(path, tokens):
    """Status, headers, body, and when it was answered."""
    connection = UnixConnection(path)
    body = {"model": "tiny", "prompt": "A prompt", "max_tokens": tokens, "seed": 3, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.headers, json.load(answer), time.monotonic()


def load(path):
    """Sends requests, one after the other, as long as they are answered. Returns the first failure; None: nobody listens any more."""
    try:
        while (answer := complete(path, 400))[0] == 200:
            pass
        return answer
    except OSError:
        return None


# A cable that is pulled out closes no connection.
@pytest.mark.parametrize("how", ["cut off", "killed"])
def test_a_lost_host_ends_requests_with_503(hosts, model, tmp_path, how):
    path = tmp_path / "quire.sock"
    command = hosts.mpirun(QUIRE, "serve", "-m", model, "--uds", path, "--served-model-name", "tiny", "-t", "1")
    with open(tmp_path / "log", "w+") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, stdin=subprocess.DEVNULL) as process:
        assert "unix:" in process.stdout.readline(), (tmp_path / "log").read_text()
        with concurrent.futures.ThreadPoolExecutor() as clients:
            assert complete(path, 8)[0] == 200
            answers = [clients.submit(load, path) for _ in range(3)]
            time.sleep(0.5)
            if how == "cut off":
                hosts.cut(2)
            else:
                for pid in ip("netns", "pids", hosts.names[2]).stdout.split():
                    os.kill(int(pid), signal.SIGKILL)
            lost = time.monotonic()
            failures = [failure for answer in answers if (failure := answer.result())]
            assert failures
            for status, headers, body, when in failures:
                assert status == 503 and headers["Retry-After"] == "5", (status, body)
                assert re.search(r"rank [012] \(host q\d+h[012], process \d+\)", body["error"]["message"]), body
                assert when - lost < 3
        assert process.wait(timeout=30) != 0
