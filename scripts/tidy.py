#!/usr/bin/env python3
"""Runs clang-tidy on src/, whose files are joined as in the build: it takes no longer for ten of them than for one, since most of what
it reads are the headers. What clean_files.py knows to be clean is left out."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from clean_files import ROOT, CleanFiles, check, included_by


def commands():
    """The folder and the entries of compile_commands.json with which files are compiled without a precompiled header."""
    build = ROOT / "build/tidy"
    subprocess.run(["cmake", "--preset", "release", "-B", build, "-DQUIRE_UNITY=ON", "-DQUIRE_TESTS=OFF"], check=True, cwd=ROOT,
                   stdout=subprocess.DEVNULL)
    path = build / "compile_commands.json"
    entries = json.loads(path.read_text())
    # clang cannot read gcc's precompiled headers. Without them, it finds a missing include unless an earlier one of the joined files has it.
    for entry in entries:
        entry["command"] = re.sub(r" -Winvalid-pch| -include \S+/cmake_pch\.hxx", "", entry["command"])
    path.write_text(json.dumps(entries))
    return build, entries


def main():
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count()
    build, entries = commands()
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    clean = CleanFiles("clang-tidy", (ROOT / ".clang-tidy").read_bytes() + version)
    waiting = []
    for entry in entries:
        source = Path(entry["file"])
        joined = source.parent.name == "Unity"  # CMake's, which includes the joined files
        # Vector code is intrinsics: clang-tidy takes minutes for it and finds nothing.
        if not (joined or source.is_relative_to(ROOT / "src")) or "kernels/x86" in str(source):
            continue
        mark = clean.mark(included_by(source) - ({source} if joined else set()))
        if mark:
            waiting.append((source, mark))
    # That the joined files are included is no finding.
    command = ["clang-tidy", "-p", str(build), "--quiet", "--checks=-bugprone-suspicious-include"]
    failed = check(jobs, waiting, command)
    print(f"clang-tidy: {len(waiting)} joined files checked, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
