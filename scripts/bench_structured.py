#!/usr/bin/env python3
"""Measures what structured output costs: decoding with JSON schemas compared with free decoding, and how much compiling schemas slows other answers.

    ./dev bench structured ../shared/data/json-schema/maskbench.jsonl.gz [--every N] [--batch 1 16]

Each line of the file is an object with a "schema". For each one, a batch of answers is generated with the schema and without it; the ratio compares
their rates from the first token to the last. Then one answer streams, alone and while schemas are compiled, and the times between its tokens are
compared.
"""

import argparse
import gzip
import http.client
import json
import statistics
import sys
import threading
import time
from pathlib import Path

from bench_serving import Server

ROOT = Path(__file__).resolve().parent.parent
SHORTEST = 24  # tokens of an answer that is measured


def stream(url, body, times):
    """The times at which tokens arrived are appended, one for each; None if the request is refused."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    connection.request("POST", "/v1/completions", json.dumps(body | {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}))
    response = connection.getresponse()
    if response.status != 200:
        return None
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            return None
        now = time.perf_counter()
        times.extend([now] * (event["usage"]["completion_tokens"] - len(times)))
    return times


def rate(url, bodies):
    """Tokens per second of requests that run together, after the first token of each; and their lengths."""
    times = [[] for _ in bodies]
    threads = [threading.Thread(target=stream, args=(url, body, t)) for body, t in zip(bodies, times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if min(map(len, times)) < 2:
        return None, []
    tokens = sum(len(t) - 1 for t in times)
    return tokens / (max(t[-1] for t in times) - max(t[0] for t in times)), [len(t) for t in times]


def measure_decode(url, schemas, batch, tokens):
    ratios, constrained, free = [], [], []
    for schema in schemas:
        ask = {"prompt": f"A JSON document that matches {json.dumps(schema)[:400]}:\n", "temperature": 0.8}
        held = [ask | {"seed": i, "json_schema": schema, "max_tokens": tokens} for i in range(batch)]
        with_schema, lengths = rate(url, held)
        if not lengths or min(lengths) < SHORTEST:
            continue
        without, _ = rate(url, [ask | {"seed": i, "max_tokens": length, "ignore_eos": True} for i, length in enumerate(lengths)])
        ratios.append(with_schema / without)
        constrained.append(with_schema)
        free.append(without)
    if not ratios:
        sys.exit("no schema gave long enough answers")
    print(f"decode of {batch:2}: {len(ratios)} schemas, median {statistics.median(constrained):6.0f} tok/s with the schema, "
          f"{statistics.median(free):6.0f} without; ratio {statistics.median(ratios):.2f} (lower quartile {sorted(ratios)[len(ratios) // 4]:.2f})")


def measure_compiling(url, schemas):
    """Requests whose schema is compiled and which are then refused, because they ignore the end of the answer."""
    gaps = {}
    stop = threading.Event()
    compiled = 0

    def compile_all():
        nonlocal compiled
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
        while not stop.is_set():
            for schema in schemas:
                if stop.is_set():
                    break
                fresh = schema | {"$comment": str(compiled)} if isinstance(schema, dict) else schema
                connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "json_schema": fresh, "ignore_eos": True}))
                connection.getresponse().read()
                compiled += 1

    for phase in ["alone", "compiling"] * 3:
        stop.clear()
        worker = threading.Thread(target=compile_all)
        if phase == "compiling":
            worker.start()
        times = stream(url, {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "seed": 1}, [])
        stop.set()
        if phase == "compiling":
            worker.join()
        gaps.setdefault(phase, []).extend(b - a for a, b in zip(times[20:], times[21:]))
    row = {phase: [statistics.median(g), sorted(g)[int(0.99 * len(g))]] for phase, g in gaps.items()}
    for i, quantile in enumerate(["median", "99th percentile"]):
        alone, busy = row["alone"][i] * 1e3, row["compiling"][i] * 1e3
        print(f"time between tokens, {quantile}: alone {alone:.2f} ms, while schemas compile {busy:.2f} ms ({busy - alone:+.2f} ms)")
    print(f"({compiled} compilations)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemas", type=Path, help="JSON lines with a member \"schema\", .gz or not")
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--quire", default=str(ROOT / "build/release/quire"))
    parser.add_argument("--every", type=int, default=10, help="take every N-th schema (default 10)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--tokens", type=int, default=128, help="most tokens of an answer (default 128)")
    arguments = parser.parse_args()
    opened = gzip.open(arguments.schemas, "rt") if arguments.schemas.suffix == ".gz" else open(arguments.schemas)
    with opened as lines:
        schemas = [json.loads(line)["schema"] for line in list(lines)[::arguments.every]]
    with Server(arguments.quire, arguments.model, "--max-model-len", "4096", "--no-prefix-cache") as server:
        for batch in arguments.batch:
            measure_decode(server.url, schemas, batch, arguments.tokens)
        measure_compiling(server.url, schemas)


if __name__ == "__main__":
    main()
