#!/usr/bin/env python3
"""Compares the forecast of quire plan --cluster with servers that run: so many processes of this machine, which take turns.

Each process has --threads threads. For the forecast, as many are measured at the same time as there are cores for, because they
share the memory; further ones share the cores. The forecast is the median of those from before and after the servers run, because
a shared machine's speed changes.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from statistics import median

QUIRE = Path("build/release/quire")
# Shown as, and where both reports have it.
FIGURES = [("TTFT p50", "ttft", "p50"), ("TTFT p95", "ttft", "p95"), ("TPOT p50", "tpot", "p50"), ("TPOT p95", "tpot", "p95"), ("e2e mean", "e2e", "mean")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(stack, arguments, count):
    """The URLs of so many servers that are ready."""
    ports = [free_port() for _ in range(count)]
    for port in ports:
        process = subprocess.Popen([QUIRE, "serve", "-m", arguments.model, "-t", str(arguments.threads), "--port", str(port), "--no-dashboard"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
    for port in ports:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=1)
                break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit(f"the server at port {port} does not start")
    return [f"http://127.0.0.1:{port}" for port in ports]


def measured(arguments, load):
    with ExitStack() as stack:
        urls = start(stack, arguments, arguments.replicas)
        command = [QUIRE, "bench", "serve", "--url", ",".join(urls), *load, "--input", str(arguments.prompt), "--cache", "any", "--json"]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {name: report[f"{what}_ms"][of] for name, what, of in FIGURES}


def forecasts(arguments, load):
    """One of each process that measures steps at the same time."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        together = max(1, min(arguments.replicas, len(os.sched_getaffinity(0)) // arguments.threads))
        json.dump({"replicas": arguments.replicas, "at_once": together}, file)
        file.flush()
        command = [QUIRE, "plan", arguments.model, "-t", str(arguments.threads), "--cluster", file.name, *load, "--prompt", str(arguments.prompt), "--json"]
        runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(together)]
        clusters = [json.loads(run.communicate()[0])["clusters"][0] for run in runs]
    return [{name: cluster[what][f"{of}_ms"] for name, what, of in FIGURES} for cluster in clusters]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("-t", "--threads", type=int, default=1, help="of each process")
    parser.add_argument("--rate", type=float, default=1.5, help="requests per second, all replicas together")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    load = ["--rate", str(arguments.rate), "--requests", str(arguments.requests), "--output", str(arguments.output), "--seed", str(arguments.seed)]
    before = forecasts(arguments, load)
    seen = measured(arguments, load)
    foretold = before + forecasts(arguments, load)
    print(f"{arguments.model}, {arguments.replicas} replicas of {arguments.threads} threads, {arguments.rate:g} requests per second, {arguments.prompt} tokens in, {arguments.output} out")
    print(f"{'':10} {'measured':>10} {'forecast':>10} {'ratio':>6}")
    for name, value in seen.items():
        expected = median(forecast[name] for forecast in foretold)
        print(f"{name:10} {value:7.1f} ms {expected:7.1f} ms {expected / value:6.2f}")


if __name__ == "__main__":
    main()
