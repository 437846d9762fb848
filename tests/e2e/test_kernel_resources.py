"""scripts/kernel_resources.py: what it reads of cuobjdump, the occupancy that follows, and what it refuses."""

import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import kernel_resources as kr  # noqa: E402

# As cuobjdump prints it, for two architectures; shortened.
USAGE = """
Fatbin elf code:
================
arch = sm_80
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN5quire4cuda10run_kernelINS0_6AttendILi8ELi4EEEEEvT_:
  REG:168 STACK:48 SHARED:0 LOCAL:0 CONSTANT[2]:48 CONSTANT[0]:576 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _Z5otherv:
  REG:8 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:352 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin ptx code:
================
arch = sm_100

Fatbin elf code:
================
arch = sm_90a
code version = [1,8]

Resource usage:
 Function _ZN5quire4cuda10run_kernelINS0_6AttendILi8ELi4EEEEEvT_:
  REG:96 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:752 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
ATTEND = "quire::cuda::Attend<8, 4>"

COUNTS = {
    "work": "one row",
    "capability": "90",
    "name": "attend",
    "kernel": ATTEND,
    "threads": 384,
    "shared_bytes": 65536,
    "launches": 1,
    "blocks": 10,
    "first_read": 3_300_000,
    "first_written": 50_000,
    "global_read": 6_000_000,
    "global_written": 400_000,
    "global_requests": 1,
    "global_sectors": 400_000,
    "shared_requests": 100,
    "bank_conflicts": 25,
    "matrix_products": 1_000_000,
    "integer_products": 0,
}


def write_counts(folder, **changes):
    row = COUNTS | changes
    file = folder / "counts.tsv"
    file.write_text("\n".join("\t".join(str(value) for value in line) for line in (row, row.values())) + "\n")
    return file


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A build tree with a library, and a cuobjdump that prints USAGE."""
    (tmp_path / "libquire_cuda.so").touch()
    (tmp_path / "usage.txt").write_text(USAGE)
    cuobjdump = tmp_path / "cuobjdump"
    cuobjdump.write_text(f'#!/bin/sh\ncat "{tmp_path}/usage.txt"\n')
    cuobjdump.chmod(0o755)
    monkeypatch.setenv("CUOBJDUMP", str(cuobjdump))
    return tmp_path


def print_tables(build, *flags):
    return subprocess.run([sys.executable, ROOT / "scripts/kernel_resources.py", *flags, build], capture_output=True, text=True)


def test_usage_is_read_for_each_architecture():
    assert kr.parse_usage(USAGE, kr.demangle) == [
        kr.Usage("80", ATTEND, registers=168, stack=48, shared=0),
        kr.Usage("90", ATTEND, registers=96, stack=0, shared=0),  # the KiB is the system's
    ]


def test_a_kernels_type_ends_at_its_bracket():
    assert kr.kernel_type("void quire::cuda::run_kernel<A<B<(C)1> > >(A<B<(C)1> >)") == "A<B<(C)1> >"
    assert kr.kernel_type("void quire::cuda::other<int>(int)") is None


@pytest.mark.parametrize(
    ("capability", "registers", "threads", "shared", "blocks", "limit"),
    [
        ("90", 24, 128, 0, 16, "threads"),
        ("89", 24, 128, 0, 12, "threads"),
        ("90", 168, 384, 0, 1, "registers"),  # 12 warps of 168 * 32 registers are 64,512
        ("90", 168, 256, 0, 1, "registers"),
        ("90", 128, 256, 0, 2, "registers"),
        ("90", 64, 32, 0, 32, "registers"),
        ("90", 16, 32, 0, 32, "blocks"),
        ("90", 64, 128, 75 << 10, 3, "shared memory"),  # each with a KiB for the system
        ("90", 64, 128, 76 << 10, 2, "shared memory"),
        ("80", 64, 128, 163 << 10, 1, "shared memory"),
        ("89", 64, 128, 163 << 10, 0, "shared memory"),
        ("90", 255, 384, 0, 0, "registers"),
    ],
)
def test_occupancy_is_that_of_the_scarcest(capability, registers, threads, shared, blocks, limit):
    fit = kr.occupancy(capability, registers, threads, shared)
    assert (fit.blocks, fit.limit) == (blocks, limit)
    assert fit.share == blocks * threads / kr.PROCESSORS[capability].threads


def test_tables_have_what_a_kernel_takes_and_its_limit(build, tmp_path):
    done = print_tables(build, "--counts", write_counts(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "| `Attend` | 1 | 384 | 64.0 | 168; 1; 19 %; 48 B spilled in 1 | 96; 1; 19 % |" in done.stdout
    # 3.35 MB at 3.35 TB/s; 400,000 sectors at 5.8 TB/s; a million products of 4,096 at 989 TFLOP/s
    assert "| one row | `attend` | 3.35 | 12.80 | 0.50 | 0.25 | 4.1 | 1.0 | 2.2 | 4.1 | matrix units | 96 | 19 % |" in done.stdout


def test_kernels_of_warpgroups_count_for_hopper_alone():
    text = USAGE.replace("_6Attend", "_10AttendWide")
    assert [u.capability for u in kr.parse_usage(text, kr.demangle)] == ["90"]


def test_the_check_fails_for_spills_and_for_blocks_that_do_not_fit(build, tmp_path):
    (build / "usage.txt").write_text(USAGE.replace("STACK:48", "STACK:480"))
    done = print_tables(build, "--check", "--counts", write_counts(tmp_path, threads=1024))
    assert done.returncode == 1
    assert "sm_80: Attend<8, 4> has 480 bytes of local memory a thread" in done.stderr
    assert "sm_90: Attend<8, 4> cannot be launched: not enough registers" in done.stderr
    assert "sm_80: Attend<8, 4> cannot" not in done.stderr  # nothing was launched for it
    (build / "usage.txt").write_text(USAGE)
    assert print_tables(build, "--check", "--counts", write_counts(tmp_path)).returncode == 0


def test_a_folder_without_kernels_is_an_error(build):
    (build / "libquire_cuda.so").unlink()
    done = print_tables(build)
    assert done.returncode == 1
    assert "has no libquire_cuda.so and no objects of it; run ./dev build cuda" in done.stderr
