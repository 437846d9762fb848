"""The program `quire` of the package: it is part of the module."""

import os
import signal
import sys

from . import _quire


def main() -> None:
    """Runs the program with this process's arguments, and ends the process."""
    # As for any program; Python has handlers of its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    code = _quire.run_program(["quire", *sys.argv[1:]])
    os._exit(code)  # the program has written all; nothing of Python's is left to do
