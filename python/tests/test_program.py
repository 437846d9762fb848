"""`python -m quire` and the script `quire` are the program."""

import pathlib
import subprocess
import sys
import sysconfig

import pytest

import quire

PROGRAM = pathlib.Path(quire.__file__).with_name("bin") / "quire"
SCRIPT = pathlib.Path(sysconfig.get_path("scripts")) / "quire"


def run(*command):
    return subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("command", [(sys.executable, "-m", "quire"), (SCRIPT,)])
def test_they_are_the_program(command):
    if command == (SCRIPT,) and not SCRIPT.exists():
        pytest.skip("the package is not installed")
    if not PROGRAM.exists():  # as ./dev python installs it
        done = run(*command, "--version")
        assert done.returncode == 1 and "is missing" in done.stderr
        return
    for arguments in (["--version"], ["--help"], ["run", "--help"], ["no-such-command"], ["run", "-m", "no-such-model", "-p", "x"]):
        done, expected = run(*command, *arguments), run(PROGRAM, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (expected.returncode, expected.stdout, expected.stderr)
    assert run(*command, "no-such-command").returncode == 2
    assert quire.__version__ in run(*command, "--version").stdout
