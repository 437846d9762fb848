#!/usr/bin/env python3
"""Compiles the sources of libquire_cuda.so to PTX with nvcc, where there is one: mistakes that the host's compiler, which compiles them
for the emulated device, does not see. For one GPU, without optimising, in a few minutes. `./dev build cuda` makes the library, with
machine code for all GPUs, in 50 minutes on two cores. What clean_files.py knows to be clean is left out."""

import os
import re
import shutil
import subprocess
import sys

from clean_files import ROOT, CleanFiles, check, included_by

FLAGS = ["-x", "cu", "-std=c++20", "--expt-relaxed-constexpr", "-fmad=false", "-arch=sm_90a", "-G", "-ptx", "-o", "/dev/null"]
FIRST_VERSION = (12, 8)


def find_nvcc():
    """Returns the path of nvcc and the output of --version, or (None, None) if no nvcc here can compile the sources."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        return None, None
    printed = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"release (\d+)\.(\d+)", printed)
    if not version or tuple(map(int, version.groups())) < FIRST_VERSION:
        return None, None
    return nvcc, printed


def main():
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count()
    nvcc, version = find_nvcc()
    if not nvcc:
        print("nvcc: CUDA 12.8 or later is not here; kernels are compiled for the emulated device only")
        return 0
    folders = [ROOT / "src", ROOT / "include", ROOT / "build/release/generated"]
    command = [nvcc, *FLAGS, *(f"-I{folder}" for folder in folders)]
    clean = CleanFiles("nvcc", (version + " ".join(FLAGS)).encode())
    sources = [path for path in sorted((ROOT / "src/cuda").rglob("*.cc")) if "emulated" not in path.parts]
    waiting = [(source, mark) for source in sources if (mark := clean.mark(included_by(source)))]
    failed = check(jobs, waiting, command)
    print(f"nvcc: {len(waiting)} files compiled, {failed} with errors")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
