#!/usr/bin/env python3
"""Compares the advice of quire plan --advise with an exhaustive search over the main options, for three workloads.

    ./dev bench advise [-m MODEL] [--budget 120s] [--workloads chat rag classify]

Both are measured in one process, run against run, so a machine whose speed drifts changes both alike. Nothing else should run. With SmolLM2 it takes about
six minutes a workload. The exit code is 1 if advice is below 0.9 of the best that was found.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUIRE = ROOT / "build/release/quire"
ENOUGH = 0.9  # of the best combination's tokens per second


def advise(o, workload):
    command = [QUIRE, "plan", o.model, "--advise", "--exhaustive", "--json", "--budget", o.budget, "--workload", workload]
    if o.slo:
        command += ["--slo", o.slo]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def flags_of(command):
    """What the command line adds to the default."""
    return " ".join(command.split()[4:]) or "the default"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--budget", default="120s", help="of each advice, as quire plan takes it")
    parser.add_argument("--slo", default="", help="as quire plan takes it")
    parser.add_argument("--workloads", nargs="+", default=["chat", "rag", "classify"], metavar="NAME|FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to it")
    o = parser.parse_args()
    results = []
    for workload in o.workloads:
        started = time.monotonic()
        a = advise(o, workload)
        results.append(a)
        e = a["exhaustive"]
        print(f"{workload}: {time.monotonic() - started:.0f} s, of which advice {a['seconds']:.0f} s with {a['runs']} runs; {e['combinations']} combinations")
        print(f"  default  {a['default']['tokens_per_second']:8.1f} tokens/s")
        print(f"  advice   x {e['advice_gain']:.3f}  {flags_of(a['best']['command'])}")
        print(f"  best     x {e['best_gain']:.3f}  {flags_of(e['command'])}")
        print(f"  advice / best {e['advice_of_best']:.3f}", flush=True)
    if o.json:
        o.json.write_text(json.dumps(results, indent=2) + "\n")
    worst = min(a["exhaustive"]["advice_of_best"] for a in results)
    print(f"advice is at least {worst:.3f} of the best")
    return 0 if worst >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
