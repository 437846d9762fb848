#!/usr/bin/env python3
"""Compares ranks with one team of threads: -tp 2, and two processes under mpirun. With --delay also two hosts with such a cable
between them (network namespaces, as root), and what the cable costs with the forecast of quire plan -tp 2 for the latency and the
bandwidth that are measured between the hosts before.

All take turns, so that whatever else the machine does slows all alike. Quoted are medians, and the range of the ratios of a turn.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median

from hosts import MPIRUN, Hosts, can_make_hosts

QUIRE = Path("build/release/quire").resolve()
TESTS = ["prefill", "decode"]


def forecast(arguments, latency, bandwidth):
    """Seconds of a step's gathers, by test. latency: seconds; bandwidth: bytes a second."""
    tokens = {"prefill": (arguments.prompt, 1), "decode": (arguments.prompt, arguments.output)}
    seconds = {}
    for test, (context, answer) in tokens.items():
        command = [QUIRE, "plan", arguments.model, "-t", "1", "--users", "1", "--context", str(context + answer), "--answer", str(answer), "-tp", "2",
                   "--rank-latency", f"{1e3 * latency:.3f}ms", "--rank-bandwidth", f"{8e-9 * bandwidth:.3f}", "--json"]
        plan = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        seconds[test] = next(step["gather_seconds"] for step in plan["ranks"]["steps"] if step["step"] == test)
    return seconds


def measure(command, arguments):
    """Seconds of a step, by test."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL).stdout
    results = json.loads(output[output.index("{") : output.rindex("}") + 1])["results"]
    rows = {"prefill": arguments.prompt, "decode": 1}
    return {result["test"]: rows[result["test"]] / result["tokens_per_second"] for result in results}


def measure_in_turns(commands, arguments):
    """By name and test, the seconds of each turn."""
    seconds = {name: {test: [] for test in TESTS} for name in commands}
    for _ in range(arguments.turns):
        for name, command in commands.items():
            for test, took in measure(command, arguments).items():
                seconds[name][test].append(took)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--output", type=int, default=64, help="tokens")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--delay", type=float, help="of a cable between two hosts: ms, one way")
    parser.add_argument("--gbits", type=float, default=1, help="Gbit/s of the cable")
    arguments = parser.parse_args()
    bench = [QUIRE, "bench", "-m", arguments.model, "-p", str(arguments.prompt), "-n", str(arguments.output), "-r", "3", "--json"]
    commands = {"one team": [*bench, "-t", "2"], "-tp 2": [*bench, "-t", "2", "-tp", "2"]}
    if MPIRUN:
        commands["mpirun -n 2"] = [MPIRUN, "--allow-run-as-root", "-n", "2", "--bind-to", "none", *bench, "-t", "1"]
    seconds = measure_in_turns(commands, arguments)
    print(f"{arguments.model}: prompt of {arguments.prompt} tokens, {arguments.output} generated, 2 threads in all")
    print(f"{'':12} {'ms a step':>10}  rate, one team is 1")
    for test in TESTS:
        for name in commands:
            ratios = [one / took for one, took in zip(seconds["one team"][test], seconds[name][test])]
            print(f"{test:8} {name:12} {1e3 * median(seconds[name][test]):8.2f}  {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    if arguments.delay is None:
        return
    if not MPIRUN or not can_make_hosts():
        sys.exit("two hosts need root and Open MPI: apt-get install libopenmpi-dev openmpi-bin, then ./dev build")
    with tempfile.TemporaryDirectory() as folder, closing(Hosts(2, Path(folder))) as hosts:
        hosts.slow(1, delay=arguments.delay / 1e3, gbits=arguments.gbits)
        latency, bandwidth = map(median, zip(*(hosts.measure_link(0, 1) for _ in range(5))))
        commands = {"one host": commands["mpirun -n 2"], "two hosts": hosts.mpirun(*bench, "-t", "1")}
        seconds = measure_in_turns(commands, arguments)
    foretold = forecast(arguments, latency, bandwidth)
    print(f"two hosts, {arguments.delay:g} ms, {arguments.gbits:g} Gbit/s; measured {1e3 * latency:.2f} ms, {8e-9 * bandwidth:.2f} Gbit/s in both directions")
    print(f"{'':8} {'ms a step':>10} {'on one host':>12} {'cable costs':>12} {'forecast':>9} {'ratio':>6}")
    for test in TESTS:
        near, far = (1e3 * median(seconds[name][test]) for name in commands)
        cost, expected = far - near, 1e3 * foretold[test]
        print(f"{test:8} {far:10.1f} {near:12.1f} {cost:12.1f} {expected:9.1f} {cost / expected:6.2f}")


if __name__ == "__main__":
    main()
