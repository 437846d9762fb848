"""The program `quire` of the wheel."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program, with the same arguments."""
    program = Path(__file__).with_name("bin") / "quire"
    if not program.exists():
        sys.exit(f"quire: {program} is missing; install the package's wheel, or build the program with ./dev build")
    os.execv(program, ["quire", *sys.argv[1:]])
