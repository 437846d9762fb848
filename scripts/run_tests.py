#!/usr/bin/env python3
"""Runs the test programs of a build and the end-to-end tests, prints a line for each, and sums them up.

The last line is "N passed, N failed, N skipped". The exit code is 1 if a test failed or none ran.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


# Programs whose threads wait for each other all the time: beside another program they take several times as long.
ALONE = {"unit_engine"}

# These begin first, since they take longest: none is left to run alone at the end.
LONGEST = ["unit_kernels", "property_engine", "unit_quantize", "unit_server", "unit_cuda", "unit_parsers"]

# Under sanitizers, by the preset's name: what would take minutes and shows little that the rest does not.
# asan: the kernels of instruction sets are compiled without sanitizers (CMakeLists.txt), so the tests that run on each set run on the
# reference alone; caches of int8 and fp8 differ from those of int4 in these kernels only. Loops of slow expressions show that their time is
# bounded; the expressions themselves are in other tests of unit_jinja.
# DeviceRanks.* remain of the tests of emulated devices that are ranks.
# tsan: suites in which threads meet, and do not run fibers, which it does not follow: the emulated GPU. Requests are parsed by one thread.
PARTS = {
    "asan": {
        "unit_amx": "TileInstructions*:Packing*:SelfCheck*:FencedMemory*",
        "unit_kernels": "-KernelSets/*avx*:KernelSets/*amx",
        "unit_jinja": "-JinjaBounds.EndLoopsOfSlowExpressions",
        "unit_engine": "-KernelSets/*avx*:KernelSets/*amx:Exactness.KernelSets*:All/Kinds.*_int8_cache*:All/Kinds.*_fp8_cache*:All/DeviceRankKinds.*:All/DeviceKernels.*:Meanwhile.*ADevicesPass",
    },
    "tsan": {
        "unit_engine": "-All/Kinds*:KernelSets*:Exactness.*:OutOfMemory*:Recordings*:Kinds/*:GpuLayers.*:DeviceSampling.*EmulatedGpu:Meanwhile.*ADevicesPass:All/GpuLayerKinds.*:CpuExperts.*:All/CpuExpertKinds.*:*SplitMixtures*:DeviceRanks.*:All/DeviceRankKinds.*:All/DeviceKernels.*",
        "unit_server": "-BadRequests*",
    },
}

ENGINE_SUITES = "Exactness.*:EqualityUnderLoad*:All/Kinds*:All/Drafters*:DrafterErrors*:Windows*:PageCache*:PrefixCache*:Engine.*:Constraint*:Embeddings*:PromptLogprobs*:Adapters*:ExpertMemory.*"

# Suites that run once more with --again, in another environment: (program, name, environment, --gtest_filter).
AGAIN = [
    (
        "unit_engine",
        "unit_engine remote",  # with the executor in a process of its own
        {"QUIRE_EXECUTOR_PROCESS": "1"},
        ENGINE_SUITES,
    ),
    # On several ranks (docs/scale.md). Suites that size a cache are not among them: ranks may need more for as many pages.
    ("unit_engine", "unit_engine ranks", {"QUIRE_RANKS": "2"}, "Exactness.*:Adapters*:Embeddings*:PromptLogprobs*:-*reference*"),
    ("golden_engine", "golden_engine ranks", {"QUIRE_RANKS": "2"}, "*HfModels.HaveTheLogits*"),
    # On a backend whose memory the host cannot touch, closed after so many operations (tests/fenced/).
    ("unit_engine", "unit_engine fenced", {"QUIRE_FENCED_BACKEND": "29"}, ENGINE_SUITES),
    ("golden_engine", "golden_engine fenced", {"QUIRE_FENCED_BACKEND": "3"}, "-*OnEveryKernelSet*"),
    # On the emulated GPU (docs/emulated-device.md).
    ("unit_engine", "unit_engine on the emulated GPU", {"QUIRE_TEST_DEVICE": "emulated"}, "EqualityUnderLoad.ThreeHundred*:DeviceSampling.ChangesNoAnswer:Ahead.Re*:Ahead.Row*"),
    ("golden_engine", "golden_engine on the emulated GPU", {"QUIRE_TEST_DEVICE": "emulated"}, "*HfModels.HaveTheLogits*:*QuantizedModels.*Near*:*QuantizedModels.*Int8Rows*:ExpertBytes.*"),
]


def without_progress(output):
    """What a program of GoogleTest prints, but for the lines of tests that begin or pass."""
    return re.sub(r"^\[( RUN      |       OK |----------)\].*\n", "", output, flags=re.M)


def run_gtest(program, timeout, environment=None, pattern="*"):
    """(passed, failed, {skip reason: count}, output to show)"""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        try:
            command = [program, f"--gtest_output=json:{report}", f"--gtest_filter={pattern}"]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, env=dict(os.environ, **(environment or {})))
            output, code = without_progress(done.stdout) + done.stderr, done.returncode
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode(errors="replace")
            last = (re.findall(r"^\[ RUN      \] (.+)$", output, re.M) or ["its first test"])[-1]
            return 0, 1, {}, f"{program}: still running after {timeout} s, in {last}\n{without_progress(output)}"
        if not report.exists():
            return 0, 1, {}, f"{program} died (exit code {code})\n{output}"
        passed = failed = 0
        skipped = Counter()
        for suite in json.loads(report.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                if test.get("failures"):
                    failed += 1
                elif test.get("result") == "SKIPPED":
                    skipped["no reason given"] += 1
                elif test.get("result") == "COMPLETED":
                    passed += 1
        reasons = Counter(line.strip() for line in re.findall(r"Skipped\n(.+)\n", output))
        if sum(reasons.values()) == sum(skipped.values()):
            skipped = reasons
        if code != 0 and failed == 0:
            failed, output = 1, f"{program} exited with {code}\n{output}"
        return passed, failed, skipped, output if failed else ""


def find_pytest():
    """pytest in a venv with the packages of tests/e2e/requirements.txt; None if they cannot be installed"""
    venv, wanted = ROOT / "build/venv", ROOT / "tests/e2e/requirements.txt"
    have = venv / "requirements.txt"  # as installed
    if not have.exists() or have.read_text() != wanted.read_text():
        print("installing pytest, the openai client and PyYAML into build/venv", file=sys.stderr)
        commands = [[sys.executable, "-m", "venv", venv], [venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", wanted]]
        if any(subprocess.run(c, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode for c in commands):
            return None
        shutil.copy(wanted, have)
    return venv / "bin/pytest"


def run_pytest(build, pattern, jobs):
    pytest = find_pytest()
    if pytest is None:
        return 0, 0, Counter({"end-to-end tests: tests/e2e/requirements.txt could not be installed": 1}), ""
    environment = dict(os.environ, QUIRE=str(build / "quire"))
    # The tests of a file share servers, so they stay together.
    beside = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
    return read_pytest([pytest, ROOT / "tests/e2e", *beside, *(["-k", pattern] if pattern else [])], environment)


def run_python_tests():
    """The Python package's, with the interpreter that it is installed for."""
    python = ROOT / "build/python-venv/bin/python"
    if not python.exists() or subprocess.run([python, "-c", "import quire"], capture_output=True, cwd=ROOT).returncode:
        return 0, 0, Counter({"the Python package could not be built: ./dev python": 1}), ""
    return read_pytest([python, "-X", "dev", "-m", "pytest", ROOT / "python/tests"], os.environ)


def read_pytest(command, environment):
    done = subprocess.run([*command, "-q", "-rs", "--no-header", "-p", "no:cacheprovider"], capture_output=True, text=True, errors="replace", cwd=ROOT, env=environment, timeout=1800)
    output = done.stdout + done.stderr
    count = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", output.splitlines()[-1] if output.strip() else "")}
    failed = count.get("failed", 0) + count.get("error", 0)
    if done.returncode not in (0, 5) and failed == 0:
        failed = 1
    skipped = Counter()
    for n, reason in re.findall(r"^SKIPPED \[(\d+)\] [^:]+:(?:\d+:)? (.+)$", output, re.M):
        skipped[reason] += int(n)
    if sum(skipped.values()) != count.get("skipped", 0):
        skipped = Counter({"no reason given": count.get("skipped", 0)}) if count.get("skipped") else Counter()
    return count.get("passed", 0), failed, skipped, output if failed else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", nargs="*", default=[], metavar="TEXT", help="only test programs whose name contains one of these")
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--kinds", default="unit,golden,property,e2e,python", help="kinds of test programs; e2e: tests/e2e with pytest; python: python/tests")
    parser.add_argument("--timeout", type=int, default=900, help="time limit of each program in seconds")
    parser.add_argument("--jobs", type=int, default=1, help="programs that run at a time")
    parser.add_argument("--again", action="store_true", help="run some suites once more, in other environments")
    parser.add_argument("--changed", action="store_true", help="only programs that were linked again since they last passed; not those of tests/e2e")
    arguments = parser.parse_args()
    os.environ.setdefault("TSAN_OPTIONS", f"suppressions={ROOT / 'tests/tsan.supp'}")
    stamps = arguments.build / "tests/passed"  # a file for each program, as old as its last run without a failure
    stamps.mkdir(exist_ok=True)

    def has_changed(program):
        stamp = stamps / program.name
        return not stamp.exists() or stamp.stat().st_mtime < program.stat().st_mtime

    programs = [p for kind in arguments.kinds.split(",") for p in sorted((arguments.build / "tests").glob(f"{kind}_*")) if os.access(p, os.X_OK) and p.is_file()]
    parts = PARTS.get(arguments.build.name, {})
    jobs = [(p.name, lambda p=p: run_gtest(p, arguments.timeout, pattern=parts.get(p.name, "*"))) for p in programs]
    if arguments.changed:
        programs = [p for p in programs if has_changed(p)]
        jobs = [job for job in jobs if any(job[0] == p.name for p in programs)]
    for again, name, environment, pattern in AGAIN if arguments.again else []:
        jobs += [(name, lambda p=p, e=environment, f=pattern: run_gtest(p, arguments.timeout, e, f)) for p in programs if p.name == again]
    jobs = [job for job in jobs if not arguments.filter or any(text in job[0] for text in arguments.filter)]
    alone = [job for job in jobs if job[0].split()[0] in ALONE]  # also in other environments
    jobs = [job for job in jobs if job not in alone]
    jobs.sort(key=lambda job: LONGEST.index(job[0]) if job[0] in LONGEST else len(LONGEST))
    # The end-to-end tests wait for answers, so only other files of theirs run at the same time.
    kinds = [] if arguments.changed else arguments.kinds.split(",")
    texts = [text for text in arguments.filter if text not in ("e2e", "python")]
    if "e2e" in kinds and ("e2e" in arguments.filter or not arguments.filter or (texts and not jobs and not alone)):
        pattern = " or ".join(text for text in texts if not any(text in job[0] for job in jobs + alone))
        alone.append(("e2e", lambda: run_pytest(arguments.build.resolve(), pattern, arguments.jobs)))
    if "python" in kinds and (not arguments.filter or "python" in arguments.filter):
        alone.append(("python", run_python_tests))

    def timed(job):
        started = time.monotonic()
        result = job[1]()
        if result[0] and not result[1]:
            (stamps / job[0]).touch()
        return *result, time.monotonic() - started

    total, reasons = Counter(), Counter()
    results = chain(ThreadPoolExecutor(arguments.jobs).map(timed, jobs), map(timed, alone))
    for (name, _), (passed, failed, skipped, output, seconds) in zip(jobs + alone, results):
        total.update(passed=passed, failed=failed, skipped=sum(skipped.values()))
        reasons.update(skipped)
        print(f"{name:24} {passed:5} passed {failed:4} failed {sum(skipped.values()):4} skipped {seconds:7.1f} s", flush=True)
        if output:
            print(output, flush=True)
    for reason, count in sorted(reasons.items()):
        print(f"skipped {count}: {reason}")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not (total["passed"] or arguments.changed) else 0


if __name__ == "__main__":
    sys.exit(main())
