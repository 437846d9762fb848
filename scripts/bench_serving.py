#!/usr/bin/env python3
"""Compares the speed of quire serve with other servers of the same model on this machine.

Each part prints a table: `clients` (closed loop with several numbers of clients), `static` (continuous against static
batching on a trace), `long` (a long prompt among running chats), `prefix` (a shared prefix cold, warm and after a
restart). Servers take turns, one at a time; `quire bench serve` generates the load.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Server:
    """A quire serve that runs for the duration of a `with` block."""

    def __init__(self, quire, model, *flags):
        self.log = tempfile.TemporaryFile("w+")
        command = [quire, "serve", "-m", model, "--port", "0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        found = re.search(r"(http://\S+)/v1", self.process.stdout.readline())
        if not found:
            self.log.seek(0)
            sys.exit(f"{' '.join(map(str, command))}: {self.log.read()}")
        self.url = found.group(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()  # no effect if it has ended


class Bench:
    def __init__(self, arguments):
        self.quire, self.model, self.threads = arguments.quire, arguments.model, arguments.threads
        self.peers = dict(peer.split("=", 1) if "=" in peer.split("//")[0] else (f"peer {i + 1}", peer) for i, peer in enumerate(arguments.peer))
        self.clients = arguments.clients
        self.per_client = arguments.requests_per_client
        self.trace = arguments.trace
        self.flags = subprocess.run([self.quire, "serve", "--help"], capture_output=True, text=True).stdout
        self.failed = False

    def serve(self, *flags):
        threads = ["-t", str(self.threads)] if self.threads else []
        return Server(self.quire, self.model, "--log-level", "warning", *threads, *flags)

    def without_prefix_cache(self):
        return self.if_supported("--no-prefix-cache")

    def if_supported(self, flag, *value):
        return [flag, *value] if re.search(rf"{flag}\b", self.flags) else []

    def load(self, url, *flags):
        """The report of one run; None if it failed, after printing why."""
        done = subprocess.run([self.quire, "bench", "serve", "--url", url, "--json", *map(str, flags)], capture_output=True, text=True)
        if done.returncode != 0:
            self.failed = True
            print(f"{url}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return json.loads(done.stdout)

    # ---- the parts ----------------------------------------------------------------------------------------------------

    def part_clients(self):
        """Closed loop, 256 tokens in, 128 out, no cached prefixes."""
        print("\n## Closed loop: 256 tokens in, 128 out, no cached prefixes\n")
        print("| clients | server | tok/s out | TTFT p50 | TTFT p95 | ITL p50 | ITL p99 | quire / best other |\n|--:|---|--:|--:|--:|--:|--:|--:|")
        with self.serve("--max-num-seqs", str(max(self.clients)), "--max-model-len", "1024", *self.without_prefix_cache()) as own:
            for clients in self.clients:
                rows = {}
                for name, url in {"quire": own.url, **self.peers}.items():
                    rows[name] = self.load(url, "-c", clients, "-n", clients * (self.per_client if clients > 1 else 3), "-i", 256, "-o", 128)
                others = [r["output_tokens_per_second"] for n, r in rows.items() if n != "quire" and r]
                for name, r in rows.items():
                    if not r:
                        print(f"| {clients} | {name} | failed | | | | | |")
                        continue
                    ratio = f"{r['output_tokens_per_second'] / max(others):.2f}x" if name == "quire" and others else ""
                    print(f"| {clients} | {name} | {r['output_tokens_per_second']:.1f} | {r['ttft_ms']['p50']:.0f} ms | {r['ttft_ms']['p95']:.0f} ms "
                          f"| {r['itl_ms']['p50']:.1f} ms | {r['itl_ms']['p99']:.1f} ms | {ratio} |", flush=True)

    def part_static(self):
        """The request rate at which each scheduler answers 95 % of the requests in time."""
        print("\n## Continuous and static batching with the lengths of a trace\n")
        if not self.if_supported("--scheduler") or not self.trace:
            print("skipped: this part needs --trace" if not self.trace else "skipped: this quire serve has no --scheduler")
            return
        scale, batch, shares = 0.25, 16, (0.8, 0.65, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05)
        load = ["--trace", self.trace, "--length-scale", scale, "--max-input", 512, "--max-output", 250]
        lengths = [max(1, round(int(line.split(",")[2]) * scale)) for line in Path(self.trace).read_text().splitlines()[1:]]
        batches = [lengths[i:i + batch] for i in range(0, len(lengths) - batch, batch)]
        waste = statistics.mean(max(b) for b in batches) / statistics.mean(lengths)
        print(f"Lengths x {scale}. A static batch of {batch} runs until its longest answer ends, on this trace {waste:.1f}x the mean answer.\n"
              "That bounds the gain of continuous batching if a step costs the same however few of its slots are in use.\n")
        print("| scheduler | requests | TTFT p50 | TTFT p95 | end to end p50 | end to end p95 |\n|---|--:|--:|--:|--:|--:|")
        limits, most, held = None, None, {}
        for scheduler in ("continuous", "static"):
            with self.serve("--max-num-seqs", str(batch), "--max-model-len", "1024", "--scheduler", scheduler, *self.without_prefix_cache()) as own:
                alone = self.load(own.url, *load, "-c", 1, "-n", 40)
                full = self.load(own.url, *load, "-c", 2 * batch, "-n", 8 * batch)
                if not alone or not full:
                    return
                most = most or full["requests_per_second"]
                # The same limits for both: what a reader tolerates, and three times the p95 of a single client.
                limits = limits or {"ttft_ms": 500.0, "e2e_ms": 3 * alone["e2e_ms"]["p95"]}
                rows = [(f"closed loop of {2 * batch}: {full['requests_per_second']:.2f}/s, {full['output_tokens_per_second']:.0f} tok/s", full), ("one at a time", alone)]
                for share in shares:
                    if all((scheduler, name) in held for name in limits):
                        break
                    rate = share * most
                    r = self.load(own.url, *load, "--rate", rate, "-n", max(40, int(20 * rate)), "--seed", 1)
                    if not r:
                        return
                    rows.append((f"{rate:.2f}/s", r))
                    for name, limit in limits.items():
                        if r[name]["p95"] <= limit:
                            held.setdefault((scheduler, name), rate)
                for name, r in rows:
                    print(f"| {scheduler} | {name} | {r['ttft_ms']['p50']:.0f} ms | {r['ttft_ms']['p95']:.0f} ms | {r['e2e_ms']['p50']:.0f} ms | {r['e2e_ms']['p95']:.0f} ms |", flush=True)
        print()
        for name, limit in limits.items():
            continuous, static = (held.get((scheduler, name)) for scheduler in ("continuous", "static"))
            least = shares[-1] * most  # the lowest rate tried
            if continuous and static:
                gain = f"{continuous / static:.1f}x"
            elif continuous:
                gain = f"more than {continuous / least:.1f}x"
            elif static:
                gain = f"less than {least / static:.1f}x"
            else:
                gain = "neither"
            print(f"p95 of {'TTFT' if name == 'ttft_ms' else 'end to end'} within {limit:.0f} ms: continuous up to {continuous or 0:.2f}/s, static up to {static or 0:.2f}/s: {gain}.")

    def part_long(self):
        """A 4,000-token prompt arrives while 16 chats are running."""
        print("\n## A 4,000-token prompt among 16 running chats\n")
        chats, long_prompt = 16, 4000
        with self.serve("--max-num-seqs", str(chats + 1), "--max-model-len", "5000", *self.without_prefix_cache()) as own, tempfile.TemporaryDirectory() as folder:
            samples = Path(folder) / "chats"
            # Long enough to outlast the prompt.
            chat = threading.Thread(target=self.load, args=(own.url, "-c", chats, "-n", chats, "-i", 64, "-o", 900, "--warmup", 0, "--samples", samples))
            began = time.monotonic()
            chat.start()
            time.sleep(8)
            sent = time.monotonic() - began
            alone = self.load(own.url, "-c", 1, "-n", 1, "-i", long_prompt, "-o", 1, "--warmup", 0)
            ended = time.monotonic() - began
            chat.join()
            gaps = {"before": [], "while": []}
            for line in samples.read_text().splitlines() if samples.exists() else []:
                pieces = json.loads(line)["pieces"]
                for a, b in zip(pieces, pieces[1:]):
                    if 3 < a and b < sent:
                        gaps["before"].append(b - a)
                    elif b > sent and a < ended:
                        gaps["while"].append(b - a)
        if not alone or min(map(len, gaps.values())) < 100:
            print(f"failed: the chats ended too early ({len(gaps['before'])} tokens before the prompt, {len(gaps['while'])} during it)")
            self.failed = True
            return
        p99 = {name: sorted(values)[int(0.99 * len(values))] * 1e3 for name, values in gaps.items()}
        print(f"| chats' ITL | p50 | p99 | tokens |\n|---|--:|--:|--:|")
        for name, values in gaps.items():
            print(f"| {name} | {statistics.median(values) * 1e3:.1f} ms | {p99[name]:.1f} ms | {len(values)} |")
        print(f"\nThe chats' p99 grows {p99['while'] / p99['before']:.2f}x; the TTFT of the long prompt is {alone['ttft_ms']['p50']:.0f} ms.")

    def part_prefix(self):
        """2,000 shared tokens: computed, found in memory, and found on disk after a restart."""
        print("\n## 2,000 shared prefix tokens\n")
        if not self.if_supported("--no-prefix-cache"):
            print("skipped: this quire serve has no prefix cache")
            return
        load = ["-c", 1, "--shared-prefix", 2000, "-i", 2016, "-o", 4, "--seed", 7]
        with tempfile.TemporaryDirectory() as folder:
            flags = ["--max-model-len", "4096", *self.if_supported("--cache-dir", folder)]
            with self.serve(*flags) as own:
                self.load(own.url, "-c", 1, "-n", 3, "-i", 2016, "-o", 4)  # touches the memory for the first time
                cold = self.load(own.url, "-c", 1, "-n", 5, "-i", 2016, "-o", 4)
                warm = self.load(own.url, *load, "-n", 20)
            if self.if_supported("--cache-dir"):
                with self.serve(*flags) as own:
                    again = self.load(own.url, *load, "-n", 1, "--warmup", 0, "--cache", "warm")
            else:
                again = None
        if not cold:
            print("failed: no result of the cold run")
            return
        print("| | TTFT p50 | speed-up | cached tokens per prompt |\n|---|--:|--:|--:|")
        for name, r in (("cold", cold), ("warm", warm), ("first after a restart", again)):
            if r:
                print(f"| {name} | {r['ttft_ms']['p50']:.2f} ms | {cold['ttft_ms']['p50'] / r['ttft_ms']['p50']:.1f}x | {(r['cached_tokens'] or 0) / r['completed']:.0f} |")


def main():
    parts = [name.removeprefix("part_") for name in dir(Bench) if name.startswith("part_")]
    parts.sort(key=["clients", "static", "long", "prefix"].index)
    parser = argparse.ArgumentParser(prog="./dev bench serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default=str(ROOT / "build/release/quire"), help=argparse.SUPPRESS)
    parser.add_argument("-m", "--model", default="smollm2", help="the model, as in `quire serve -m` (default: %(default)s)")
    parser.add_argument("-t", "--threads", type=int, default=0, help="threads of quire serve (default: all usable cores)")
    parser.add_argument("--peer", action="append", default=[], metavar="[NAME=]URL", help="another running, idle server of the same model; repeat for several")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8, 32], metavar="N,...", help="numbers of clients for `clients` (default: 1,8,32)")
    parser.add_argument("--requests-per-client", type=int, default=2, help="for `clients` (default: %(default)s)")
    shared = ROOT / "../shared/data/traces/AzureLLMInferenceTrace_conv.csv"
    parser.add_argument("--trace", default=str(shared) if shared.exists() else "", help="trace for `static`: Azure's CSV")
    parser.add_argument("parts", nargs="*", default=[], metavar="PART", help=f"parts to run: {', '.join(parts)} (default: all)")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in parts:
            parser.error(f"unknown part {part}; use {', '.join(parts)}")
    bench = Bench(arguments)
    for part in arguments.parts or parts:
        getattr(bench, f"part_{part}")()
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
