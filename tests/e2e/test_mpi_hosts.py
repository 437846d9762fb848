"""Ranks on several hosts: network namespaces with a switch between them, and mpirun's ssh replaced by `ip netns exec`."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import QUIRE, quire

MPIRUN = shutil.which("mpirun")


def can_make_hosts():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    probe = f"q{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", probe], check=True)
    return made


pytestmark = [
    pytest.mark.skipif(not (MPIRUN and QUIRE.with_name("libquire_mpi.so").exists()), reason="no MPI: apt-get install libopenmpi-dev openmpi-bin, then ./dev build"),
    pytest.mark.skipif(not can_make_hosts(), reason="this user may not make network namespaces"),
]


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


class Hosts:
    """Namespaces with one network card each, all at one switch."""

    def __init__(self, count, folder):
        self.switch = f"q{os.getpid()}s"
        self.names = [f"q{os.getpid()}h{i}" for i in range(count)]
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"10.99.0.{i + 1}/24", "dev", "eth0")
            for card in "lo", "eth0":
                ip("-n", name, "link", "set", card, "up")
        self.agent = folder / "agent"
        self.agent.write_text('#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n')
        self.agent.chmod(0o755)

    def mpirun(self, *arguments):
        """The command that starts a process on each host, from the first."""
        network = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]
        # Otherwise mpirun itself waits for minutes for a host that is cut off (docs/scale.md).
        network += [part for what in ("time", "intvl", "probes") for part in ("--mca", f"oob_tcp_keepalive_{what}", "1")]
        command = [MPIRUN, "--allow-run-as-root", "--bind-to", "none", "--host", ",".join(self.names), "--mca", "plm_rsh_agent", self.agent, *network, *arguments]
        first = self.names[0]
        return ["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c", f'hostname {first}; exec "$@"', "sh", *map(str, command)]

    def cut(self, i):
        ip("-n", self.switch, "link", "set", f"port{i}", "down")

    def slow(self, i):
        return subprocess.run(["tc", "-n", self.names[i], "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "1ms", "rate", "1gbit"], capture_output=True)

    def close(self):
        for name in self.names:
            for pid in ip("netns", "pids", name, check=False).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for name in [*self.names, self.switch]:
            ip("netns", "del", name, check=False)


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


def test_a_slow_network_changes_no_answer(hosts, model):
    if (made := hosts.slow(1)).returncode != 0:
        pytest.skip(f"tc cannot slow a network here: {made.stderr.decode().strip()}")
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
