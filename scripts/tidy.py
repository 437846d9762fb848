#!/usr/bin/env python3
"""Runs clang-tidy on src/. A file without findings is checked again only when it, a header it includes, or .clang-tidy changes."""

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def headers_of(build):
    """source -> the project's headers it includes, as ninja recorded them"""
    record = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True, check=True).stdout
    found = {}
    for block in record.split("\n\n"):
        files = [(build / line.strip()).resolve() for line in block.splitlines()[1:]]
        own = [f for f in files if f.is_relative_to(ROOT) and not f.is_relative_to(build.resolve())]
        if own:
            found[own[0]] = own[1:]
    return found


def main():
    build, jobs = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    clean = ROOT / "build/tidy-clean"
    clean.mkdir(parents=True, exist_ok=True)
    settings = (ROOT / ".clang-tidy").read_bytes()
    headers = headers_of(build)
    waiting = []
    entries = json.loads((build / "compile_commands.json").read_text())
    # clang cannot read gcc's precompiled headers. Without them, each file must include what it uses.
    for entry in entries:
        entry["command"] = re.sub(r" -Winvalid-pch| -include \S+/cmake_pch\.hxx", "", entry["command"])
    (clean / "compile_commands.json").write_text(json.dumps(entries))
    for entry in entries:
        source = Path(entry["file"])
        # Vector code is intrinsics: clang-tidy takes minutes for it and finds nothing.
        if not source.is_relative_to(ROOT / "src") or "kernels/x86" in str(source):
            continue
        state = hashlib.sha256(settings)
        for file in sorted([source, *headers.get(source, [])]):
            state.update(file.read_bytes())
        mark = clean / state.hexdigest()
        if not mark.exists():
            waiting.append((source, mark))

    def check(job):
        source, mark = job
        done = subprocess.run(["clang-tidy", "-p", str(clean), "--quiet", str(source)], capture_output=True, text=True)
        if done.returncode == 0:
            mark.touch()
        return source, done

    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for source, done in pool.map(check, waiting):
            if done.returncode != 0:
                failed += 1
                print(f"{source.relative_to(ROOT)}:\n{done.stdout}{done.stderr if not done.stdout else ''}", flush=True)
    print(f"clang-tidy: {len(waiting)} files checked, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
