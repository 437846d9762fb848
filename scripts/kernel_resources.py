#!/usr/bin/env python3
"""What each CUDA kernel takes of a GPU, and what bounds it, without a GPU: prints the tables of docs/gpu-kernels.md.

    scripts/kernel_resources.py [--check] [--counts FILE] BUILD...

BUILD: libquire_cuda.so, object files, or a folder that has either (build/cuda), read with cuobjdump and c++filt. Registers, spills and static
shared memory are the binary's. Threads and dynamic shared memory are those of launches on the emulated device, from FILE, which
build/release/kernel_counts makes, or any program with QUIRE_KERNEL_COUNTS. Without FILE there is no occupancy, and no second table.
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

# Bytes of local memory that --check permits a thread, as spilled today: those of LinearOfManyRows with float16 and float32 weights.
ALLOWED_STACK, ALLOWED_STACK_OF = 96, {"LinearOfManyRows": 640, "LinearOfFewRows": 112}
# Launched on capability 9.0 alone, for products of warpgroups (takes_many_rows(), attention_shapes()). Elsewhere the binary has them in vain.
OF_WARPGROUPS = {"AttendWide", "LinearInClusters", "LinearOfBf16Rows", "LinearOfFp8Rows", "LinearOfInt8Rows", "LinearOfManyRows", "FinishSums", "MultiplyPeak"}

# What a multiprocessor has: the table of technical specifications by compute capability in NVIDIA's CUDA C++ Programming Guide.
# All have 65,536 registers, of which a warp takes multiples of 256, and keep 1 KiB of shared memory for themselves in each block.
@dataclass
class Processor:
    threads: int
    blocks: int
    shared: int  # bytes
    block_shared: int  # of a block, at most


PROCESSORS = {
    "80": Processor(2048, 32, 164 << 10, 163 << 10),
    "89": Processor(1536, 24, 100 << 10, 99 << 10),
    "90": Processor(2048, 32, 228 << 10, 227 << 10),
    "100": Processor(2048, 32, 228 << 10, 227 << 10),
}
REGISTERS, REGISTER_UNIT, SHARED_UNIT, RESERVED_SHARED = 65536, 256, 128, 1024

# An H100 SXM: memory, dense bf16 and int8 as NVIDIA's H100 datasheet has them. The L2 cache's rate is not published: it is what linears
# of 4,096 rows in bf16 read from it on an H200 (docs/cuda.md).
MEMORY_RATE, L2_RATE, BF16_RATE, INT8_RATE = 3.35e12, 5.8e12, 989e12, 1979e12
# Arithmetic of a product of matrices, 16 x 8 x 16 and 16 x 8 x 32 (cuda/emulated/counters.h).
PRODUCT, INTEGER_PRODUCT = 2 * 16 * 8 * 16, 2 * 16 * 8 * 32


@dataclass(frozen=True)
class Usage:
    """What cuobjdump says of a kernel for an architecture."""

    capability: str  # "90" for sm_90a
    kernel: str  # its type
    registers: int
    stack: int  # bytes of local memory of a thread, spilled registers among them
    shared: int  # static


def kernel_type(function):
    """The kernel of a demangled "void quire::cuda::run_kernel<KERNEL>(KERNEL)"; None of other functions."""
    at = function.find("run_kernel<")
    if at < 0:
        return None
    first = at + len("run_kernel<")
    depth = 1
    for i in range(first, len(function)):
        depth += {"<": 1, ">": -1}.get(function[i], 0)
        if depth == 0:
            return function[first:i].strip()
    return None


def parse_usage(text, demangle):
    """Usages of the output of cuobjdump --dump-resource-usage. demangle: symbols -> names."""
    found, capability, symbol = [], None, None
    for line in text.splitlines():
        if m := re.match(r"arch = sm_(\d+)", line):
            capability = m[1]
        elif m := re.match(r"\s*Function (\S+):", line):
            symbol = m[1]
        elif capability in PROCESSORS and symbol and "REG:" in line:
            values = {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", line)}
            # From capability 9 on, it counts what is kept for the system as static.
            shared = values["SHARED"] - (RESERVED_SHARED if int(capability) >= 90 else 0)
            found.append((capability, symbol, values["REG"], values["STACK"] + values["LOCAL"], max(shared, 0)))
            symbol = None
    names = demangle(sorted({f[1] for f in found}))
    usages = [Usage(c, kernel, *rest) for c, s, *rest in found if (kernel := kernel_type(names[s]))]
    return [u for u in usages if u.capability == "90" or template(u.kernel) not in OF_WARPGROUPS]


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"kernel_resources: {command[0]} failed: {done.stderr.strip()}")
    return done.stdout


def demangle(symbols):
    program = shutil.which("cu++filt") or shutil.which("c++filt")
    if not program:
        sys.exit("kernel_resources: there is no c++filt; install binutils")
    return dict(zip(symbols, run([program], input="\n".join(symbols)).splitlines()))


def binaries_of(build):
    if build.is_file():
        return [build]
    library = build / "libquire_cuda.so"
    return [library] if library.exists() else sorted(build.glob("**/quire_cuda_device.dir/**/*.o"))


def read_usage(builds):
    cuobjdump = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"
    if not Path(cuobjdump).exists():
        sys.exit(f"kernel_resources: there is no {cuobjdump}; install NVIDIA's cuda-cuobjdump, or set CUOBJDUMP")
    found = set()
    for build in builds:
        binaries = binaries_of(build)
        if not binaries:
            sys.exit(f"kernel_resources: {build} has no libquire_cuda.so and no objects of it; run ./dev build cuda")
        for binary in binaries:
            found |= set(parse_usage(run([cuobjdump, "--dump-resource-usage", binary]), demangle))
    if not found:
        sys.exit(f"kernel_resources: {builds[0]} has no kernels of a known architecture")
    return sorted(found, key=lambda u: (u.kernel, int(u.capability)))


def read_counts(file):
    try:
        with open(file, newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
    except OSError as error:
        sys.exit(f"kernel_resources: cannot read {file}: {error.strerror}; make it with build/release/kernel_counts")
    text = {"work", "capability", "name", "kernel"}
    return [{key: value if key in text else int(value) for key, value in row.items()} for row in rows]


@dataclass
class Occupancy:
    blocks: int  # of a multiprocessor; 0: it cannot be launched
    share: float  # of the threads that it can have
    limit: str  # what there is not enough of for another block


def occupancy(capability, registers, threads, shared):
    of = PROCESSORS[capability]
    warps = -(-threads // 32)
    warp_registers = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    block_shared = -(-(shared + RESERVED_SHARED) // SHARED_UNIT) * SHARED_UNIT
    possible = {
        "registers": REGISTERS // 4 // warp_registers * 4 // warps,
        "shared memory": of.shared // block_shared if shared <= of.block_shared else 0,
        "threads": of.threads // (32 * warps),
        "blocks": of.blocks,
    }
    limit = min(possible, key=possible.get)
    return Occupancy(possible[limit], possible[limit] * 32 * warps / of.threads, limit)


class Launches:
    """Threads and shared memory of kernels: the most that launches had."""

    def __init__(self, counts):
        self.known = defaultdict(dict)  # by kernel and capability
        for row in counts:
            of = self.known[row["kernel"]]
            threads, shared = of.get(row["capability"], (0, 0))
            of[row["capability"]] = max(threads, row["threads"]), max(shared, row["shared_bytes"])

    def counted(self, usage):
        """Whether the kernel was launched for this architecture, and not only for another."""
        return usage.capability in self.known.get(usage.kernel, {})

    def of(self, usage):
        of = self.known.get(usage.kernel, {})
        return of.get(usage.capability) or of.get("90")

    def occupancy(self, usage):
        launch = self.of(usage)
        return occupancy(usage.capability, usage.registers, launch[0], launch[1] + usage.shared) if launch else None


def span(values, digits=0):
    texts = [f"{v:,.{digits}f}" for v in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else "–".join(texts)


def template(kernel):
    return kernel.split("<")[0].split("::")[-1]


def short(kernel):
    return re.sub(r"quire::(cuda::)?", "", kernel)


def resources_table(usages, launches):
    capabilities = [c for c in PROCESSORS if any(u.capability == c for u in usages)]
    print("| kernel | instances | threads | shared KiB |" + "".join(f" {c[:-1]}.{c[-1]} |" for c in capabilities))
    print("|---|--:|--:|--:|" + "--:|" * len(capabilities))
    groups = defaultdict(list)
    for u in usages:
        groups[template(u.kernel)].append(u)
    for name, group in sorted(groups.items()):
        known = [launch for u in group if (launch := launches.of(u))]
        cells = [f"`{name}`", str(len({u.kernel for u in group}))]
        cells += [span([l[0] for l in known]) if known else "", span([l[1] / 1024 for l in known], 1) if known else ""]
        for c in capabilities:
            here = [u for u in group if u.capability == c]
            text = span([u.registers for u in here]) if here else ""
            # Where a launch for another architecture does not fit, this one's are smaller, or of another kernel.
            if fits := [o for u in here if (o := launches.occupancy(u)) and (o.blocks or launches.counted(u))]:
                text += f"; {span([o.blocks for o in fits])}; {span([100 * o.share for o in fits])} %"
            if spilled := [u.stack for u in here if u.stack]:
                text += f"; {max(spilled)} B spilled in {len(spilled)}"
            cells.append(text)
        print("| " + " | ".join(cells) + " |")


def limits_table(counts, usages, launches):
    by_kernel = {u.kernel: u for u in usages if u.capability == "90"}
    print("| work | kernel | memory, MB | L2, MB | used | conflicts | GFLOP | memory, µs | L2, µs | matrix units, µs | bound by | registers | occupancy |")
    print("|---|---|" + "--:|" * 8 + "---|--:|--:|")
    groups = defaultdict(list)
    for row in counts:
        if row["capability"] == "90" and row["work"] != "all":
            groups[row["work"], row["name"]].append(row)
    for (work, name), rows in groups.items():
        total = {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)}
        memory, l2 = total["first_read"] + total["first_written"], 32 * total["global_sectors"]
        bf16 = PRODUCT * (total["matrix_products"] - total["integer_products"])
        int8 = INTEGER_PRODUCT * total["integer_products"]
        times = {"memory": memory / MEMORY_RATE, "L2 cache": l2 / L2_RATE, "matrix units": bf16 / BF16_RATE + int8 / INT8_RATE}
        asked = total["global_read"] + total["global_written"]
        known = [by_kernel[row["kernel"]] for row in rows if row["kernel"] in by_kernel]
        fits = [o for u in known if (o := launches.occupancy(u))]
        cells = [work, f"`{name}`", f"{memory / 1e6:,.2f}", f"{l2 / 1e6:,.2f}", f"{asked / max(l2, 1):.2f}"]
        cells += [f"{total['bank_conflicts'] / max(total['shared_requests'], 1):.2f}", f"{(bf16 + int8) / 1e9:,.1f}"]
        cells += [f"{1e6 * t:,.1f}" for t in times.values()] + [max(times, key=times.get)]
        cells += [span([u.registers for u in known]) if known else "", f"{span([100 * o.share for o in fits])} %" if fits else ""]
        print("| " + " | ".join(cells) + " |")


def mistakes(usages, launches):
    for u in usages:
        if u.stack > ALLOWED_STACK_OF.get(template(u.kernel), ALLOWED_STACK):
            yield f"sm_{u.capability}: {short(u.kernel)} has {u.stack} bytes of local memory a thread"
        fit = launches.occupancy(u)
        if fit and fit.blocks == 0 and launches.counted(u):
            yield f"sm_{u.capability}: {short(u.kernel)} cannot be launched: not enough {fit.limit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=Path, nargs="+", metavar="BUILD")
    parser.add_argument("--counts", metavar="FILE", help="what launches on the emulated device did")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a kernel spills or cannot be launched")
    options = parser.parse_args()
    counts = read_counts(options.counts) if options.counts else []
    usages, launches = read_usage(options.builds), Launches(counts)
    resources_table(usages, launches)
    if counts:
        print()
        limits_table(counts, usages, launches)
    wrong = list(mistakes(usages, launches))
    for line in wrong:
        print(f"kernel_resources: {line}", file=sys.stderr)
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
