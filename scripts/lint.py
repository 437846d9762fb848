#!/usr/bin/env python3
"""Checks formatting, house rules, clang-tidy findings, and what nvcc says of kernels. Exit code 1 if there are any."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--kernels-built-by", required=True, help="a command that builds the kernels")
    arguments = parser.parse_args()
    subprocess.run(arguments.kernels_built_by, shell=True, check=True, cwd=ROOT)
    found = False

    sources = subprocess.run(["git", "ls-files", "*.cc", "*.h"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    # Versions of clang-format differ; 14 is the reference.
    formatter = shutil.which("clang-format-14") or "clang-format"
    layout = subprocess.run([formatter, "--dry-run", "-Werror", *sources], capture_output=True, text=True, cwd=ROOT)
    if layout.returncode != 0:
        files = sorted({line.split(":")[0] for line in layout.stderr.splitlines() if "-Wclang-format-violations" in line})
        print(f"not formatted; run {Path(formatter).name} -i on:\n  " + "\n  ".join(files))
        found = True
    if shutil.which("shellcheck"):
        found |= subprocess.run(["shellcheck", "dev", ".ci/run", "scripts/release/static_libraries.sh"], cwd=ROOT).returncode != 0

    build = ROOT / "build/release"
    found |= subprocess.run([sys.executable, ROOT / "scripts/check_layers.py", build]).returncode != 0
    for check in ("tidy.py", "check_cuda.py"):
        found |= subprocess.run([sys.executable, ROOT / "scripts" / check, arguments.jobs]).returncode != 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
