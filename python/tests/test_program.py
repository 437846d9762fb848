"""`python -m quire` and the script `quire` are the program."""

import pathlib
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.request

import pytest

import quire
from conftest import PYTHON, TINY

SCRIPT = pathlib.Path(sysconfig.get_path("scripts")) / "quire"
COMMANDS = [(*PYTHON, "-m", "quire"), (SCRIPT,)]


def run(*command):
    return subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=60)


@pytest.fixture(params=COMMANDS, ids=["module", "script"])
def command(request):
    if request.param == (SCRIPT,) and not SCRIPT.exists():
        pytest.skip("the package is not installed")
    return request.param


def test_they_are_the_program(command):
    assert run(*command, "--version").stdout == f"quire {quire.__version__}\n"
    help = run(*command, "run", "--help")
    assert help.returncode == 0 and "--prompt" in help.stdout
    wrong = run(*command, "no-such-command")
    assert wrong.returncode == 2 and wrong.stderr.startswith("quire: unknown command 'no-such-command'")
    failed = run(*command, "run", "-m", "no-such-model", "-p", "x")
    assert failed.returncode == 1 and "no-such-model" in failed.stderr


def test_they_answer_as_the_package_does(command, tiny):
    parameters = quire.SamplingParams(temperature=0, max_tokens=8)
    expected = tiny.generate(["One"], parameters)[0].outputs[0].text
    options = ["-t", "2", "--memory", "400MiB", "--temperature", "0", "-n", "8"]
    done = run(*command, "run", "-m", TINY, "-p", "One", "--raw", *options)
    assert done.returncode == 0 and expected in done.stdout


def test_a_reader_that_leaves_ends_them(command):
    with subprocess.Popen([*command, "list", "--formats"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == -signal.SIGPIPE or process.returncode == 1, process.stderr.read()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_server_as_they_end_the_program(command, number):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = ["serve", "-m", TINY, "-t", "1", "--memory", "400MiB", "--port", str(port), "--no-dashboard"]
    with subprocess.Popen([*command, *serve], stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1)
                    break
                except OSError:
                    time.sleep(0.1)
            process.send_signal(number)
            assert process.wait(30) == 0
        finally:
            process.kill()
        assert "stopping" in process.stderr.read()


def test_ctrl_c_ends_what_has_no_handler(command):
    wait = ["run", "-m", TINY, "-t", "1", "--memory", "400MiB", "-p", "-"]  # reads standard input
    with subprocess.Popen([*command, *wait], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(30) in (-signal.SIGINT, 130)
        finally:
            process.kill()


def test_the_program_needs_little_of_the_package():
    code = "import sys, quire.program; print([m for m in ('numpy', 'asyncio', 'tqdm') if m in sys.modules])"
    assert run(*PYTHON, "-c", code).stdout == "[]\n"
