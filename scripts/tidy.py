#!/usr/bin/env python3
"""Runs clang-tidy on src/, whose files are joined as in the build: it takes no longer for ten of them than for one, since most of what
it reads are the headers. Joined files without findings are checked again only when one of them, a header they include, .clang-tidy or the
program changes: all checkouts share what is known of clean files, as they share the compiler's cache."""

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# An empty file for each clean state of joined files.
CLEAN = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quire/clang-tidy"
DAYS_KEPT = 60


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


@functools.cache
def included_by(path):
    """The project's files that a file includes, itself among them."""
    found = {path}
    for name in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', path.read_text(), re.MULTILINE):
        for folder in (ROOT / "src", ROOT / "include"):
            if (folder / name).is_file():
                found |= included_by(folder / name)
    return found


def main():
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count()
    build, entries = commands()
    CLEAN.mkdir(parents=True, exist_ok=True)
    for mark in CLEAN.iterdir():
        if time.time() - mark.stat().st_mtime > DAYS_KEPT * 86400:
            mark.unlink()
    settings = (ROOT / ".clang-tidy").read_bytes() + subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    waiting = []
    for entry in entries:
        source = Path(entry["file"])
        joined = source.parent.name == "Unity"  # CMake's, which includes the joined files
        # Vector code is intrinsics: clang-tidy takes minutes for it and finds nothing.
        if not (joined or source.is_relative_to(ROOT / "src")) or "kernels/x86" in str(source):
            continue
        state = hashlib.sha256(settings)
        for file in sorted(included_by(source) - ({source} if joined else set())):
            state.update(file.read_bytes())
        mark = CLEAN / state.hexdigest()
        if mark.exists():
            mark.touch()
        else:
            waiting.append((source, mark))

    def check(job):
        source, mark = job
        # That the joined files are included is no finding.
        command = ["clang-tidy", "-p", str(build), "--quiet", "--checks=-bugprone-suspicious-include", str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            mark.touch()
        return source, done

    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for source, done in pool.map(check, waiting):
            if done.returncode != 0:
                failed += 1
                print(f"{source.relative_to(ROOT)}:\n{done.stdout}{done.stderr if not done.stdout else ''}", flush=True)
    print(f"clang-tidy: {len(waiting)} joined files checked, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
