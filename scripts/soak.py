#!/usr/bin/env python3
"""Puts quire serve under a long mixed load and checks that nothing leaks, hangs, crashes or changes an answer.

Client threads request answers of all lengths, share prefixes, ask for several choices, read slowly, disconnect at any
point and send invalid requests. Prints a line every ten seconds. The exit code is 1 if one of these fails:

  - a fixed set of requests always gets the answers it got alone at the start: token ids and log-probabilities;
  - resident memory stays within 3 % of the total that the server prints, or else of its size after the warm-up;
  - invalid requests get a 4xx, no request gets a 5xx, and /health answers within two seconds;
  - at the end no request is running or waiting, and no file descriptor or thread has leaked.

With -m NAME=MODEL several times, requests are for any of the models, which are also unloaded at random; with a --memory
that cannot hold all, they take each other's place. Vocabularies need 30,000 tokens. --embedder adds a model that is asked
for vectors, and --adapters N adapters of the first model, a GGUF file, whose numbers are random.

    ./dev soak -m chat=smollm2 -m base=gemma3-270m --embedder vectors=FOLDER --adapters 16 -- --memory 3GiB
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from random_adapter import write_adapters

ROOT = Path(__file__).resolve().parent.parent
WARMUP_SHARE, RSS_SLACK = 0.15, 1.03
MAX_MODEL_LEN = 2048
CLIENT_PATIENCE = 300  # seconds
FIRST_ID, LAST_ID = 1000, 30000  # ordinary tokens


class Server:
    def __init__(self, quire, models, embedder, adapters, flags):
        self.log = tempfile.TemporaryFile("w+")
        several = models + embedder
        self.models = [model.partition("=")[0] for model in several] if len(several) > 1 else []
        self.memory = flags[flags.index("--memory") + 1] if "--memory" in flags else None
        self.folder = tempfile.TemporaryDirectory()
        served = [part for model in models for part in ("-m", model)] + ["--max-model-len", str(MAX_MODEL_LEN)]
        if embedder or adapters:
            served = ["--models-preset", self.write_preset(quire, models, embedder, adapters)]
        self.process = subprocess.Popen([quire, "serve", *served, "--port", "0", "--log-level", "info", *flags],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        found = re.search(r"http://([^:]+):(\d+)", self.process.stdout.readline())
        if not found:
            sys.exit(f"the server did not start: {self.logged()}")
        self.host, self.port = found.group(1), int(found.group(2))
        self.embedding = [model.partition("=")[0] for model in embedder]
        self.completing = [name for name in self.names() if name not in self.embedding]  # also those of adapters

    def write_preset(self, quire, models, embedder, adapters):
        folder, sections = Path(self.folder.name), []
        for model in models + embedder:
            name, _, path = model.rpartition("=")
            lines = [f"[{name or path}]", f"model = {path}"]
            if model in models:
                lines.append(f"max-model-len = {MAX_MODEL_LEN}")
            if model == models[0] and adapters:
                written = write_adapters(quire, path, folder, adapters)
                lines.append("lora = [" + ", ".join(f'"{name}={path}"' for name, path in written.items()) + "]")
            sections.append("\n".join(lines) + "\n")
        preset = folder / "models.ini"
        preset.write_text("\n".join(sections))
        return str(preset)

    def names(self):
        """All names that requests may have for a model."""
        return [model["id"] for model in json.loads(self.get("/v1/models")[1])["data"]]

    def logged(self):
        self.log.seek(0)
        return self.log.read()

    def proc(self, name):
        return Path(f"/proc/{self.process.pid}/{name}")

    def rss(self):
        """Resident memory in MiB."""
        found = re.search(r"VmRSS:\s+(\d+)", self.proc("status").read_text())
        return int(found.group(1)) / 1024 if found else 0.0  # 0: it has ended

    def threads(self):
        return int(re.search(r"Threads:\s+(\d+)", self.proc("status").read_text()).group(1))

    def files(self):
        return len(list(self.proc("fd").iterdir()))

    def call(self, method, path, body, timeout):
        """(status, answer)"""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body, {} if body is None else {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def get(self, path):
        return self.call("GET", path, None, 10)

    def post(self, path, body):
        return self.call("POST", path, body if isinstance(body, bytes) else json.dumps(body), CLIENT_PATIENCE)

    def metric(self, name):
        text = self.get("/metrics")[1].decode()
        return sum(float(value) for value in re.findall(rf"^\w+:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))

    def printed_total(self):
        """MiB, as printed by the server, or of several models as given; None if there is no total."""
        found = re.search(r"memory: total +([\d.,]+) ([KMG])iB", self.logged())
        if self.models:
            found = re.fullmatch(r"([\d.]+)([KMG])iB", self.memory or "")
        return float(found.group(1).replace(",", "")) * {"K": 1 / 1024, "M": 1, "G": 1024}[found.group(2)] if found else None


class Soak:
    def __init__(self, server, seed):
        self.server, self.seed = server, seed
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.count = Counter()
        self.wrong = []
        self.slowest_health = 0.0
        rng = random.Random(seed)
        self.prefixes = [self.tokens(rng, n) for n in (40, 300, 700)]
        self.fixed = [self.request(rng, i) for i in range(16 + 2 * len(server.completing))]
        self.inputs = [tuple(rng.choices(range(5, 100), k=k)) for k in (1, 2, 5, 10, 20, 40, 80, 120)]  # token ids
        self.answers, self.vectors = [], {}

    @staticmethod
    def tokens(rng, n):
        return [rng.randint(FIRST_ID, LAST_ID) for _ in range(n)]

    def request(self, rng, i=None):
        """For any name; the i-th in turn."""
        prompt = self.tokens(rng, rng.choice([1, 5, 30, 100, 400]))
        if rng.random() < 0.5:
            prompt = rng.choice(self.prefixes) + prompt
        body = {"prompt": prompt, "max_tokens": rng.choice([1, 4, 16, 60]), "ignore_eos": rng.random() < 0.8, "logprobs": 1,
                "return_tokens_as_token_ids": True, "seed": rng.randint(0, 1 << 30)}
        if rng.random() < 0.5:
            body |= {"temperature": 0}
        else:
            body |= {"temperature": 0.9, "top_p": 0.95, "top_k": rng.choice([0, 40]), "frequency_penalty": rng.choice([0, 0.5])}
        if rng.random() < 0.25:
            body["n"] = 3
        names = self.server.completing
        body["model"] = names[i % len(names)] if i is not None else rng.choice(names)
        return body

    @staticmethod
    def content(answer):
        choices = sorted(json.loads(answer)["choices"], key=lambda c: c["index"])
        return [(c["text"], c["finish_reason"], c["logprobs"]["tokens"], c["logprobs"]["token_logprobs"]) for c in choices]

    def complain(self, what):
        with self.lock:
            if len(self.wrong) < 20:
                self.wrong.append(what)
            self.count["wrong"] += 1

    def done(self, what):
        with self.lock:
            self.count[what] += 1

    # ---- client actions -----------------------------------------------------------------------------------------------

    def solo(self):
        for body in self.fixed:
            status, answer = self.server.post("/v1/completions", body)
            if status != 200:
                sys.exit(f"an ordinary request got HTTP {status}: {answer[:300]}")
            self.answers.append(self.content(answer))
        for model in self.server.embedding:
            for ids in self.inputs:
                status, answer = self.vector(model, ids)
                if status != 200:
                    sys.exit(f"{model} got HTTP {status}: {answer}")
                self.vectors[model, ids] = answer

    def vector(self, model, ids):
        status, answer = self.server.post("/v1/embeddings", {"model": model, "input": ids})
        return status, json.loads(answer)["data"][0]["embedding"] if status == 200 else answer[:300]

    def embed(self, rng):
        model, ids = rng.choice(list(self.vectors))
        status, answer = self.vector(model, ids)
        if status != 200:
            self.complain(f"an embedding: HTTP {status}: {answer}")
        elif answer != self.vectors[model, ids]:
            self.complain(f"the vector of {ids} differs from the one it got alone")
        self.done("embedded")

    def repeat(self, rng):
        """A request of the fixed set."""
        i = rng.randrange(len(self.fixed))
        status, answer = self.server.post("/v1/completions", self.fixed[i])
        if status != 200:
            self.complain(f"fixed request {i}: HTTP {status}: {answer[:200]}")
        elif self.content(answer) != self.answers[i]:
            self.complain(f"fixed request {i}: the answer differs from the one it got alone")
        self.done("repeated")

    def fresh(self, rng):
        status, answer = self.server.post("/v1/completions", self.request(rng))
        if status != 200:
            self.complain(f"fresh request: HTTP {status}: {answer[:200]}")
        self.done("fresh")

    def stream(self, rng, most_bytes=None, pause=0.0):
        """Reads a stream to its end, or disconnects after most_bytes; `pause` slows it down."""
        with socket.socket() as raw:
            if pause:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            raw.settimeout(CLIENT_PATIENCE)
            raw.connect((self.server.host, self.server.port))
            body = self.request(rng) | {"stream": True}
            raw.sendall(self.post_bytes(body))
            got = b""
            while most_bytes is None or len(got) < most_bytes:
                piece = raw.recv(256 if pause else 65536)
                got += piece
                if not piece or got.endswith(b"0\r\n\r\n"):
                    break
                time.sleep(pause)
            if most_bytes is None and b"data: [DONE]" not in got:
                self.complain(f"a stream ended without [DONE]: ...{got[-200:]!r}")
            if rng.random() < 0.5:  # reset instead of an orderly close
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def read_stream(self, rng):
        self.stream(rng)
        self.done("streamed")

    def slow_reader(self, rng):
        self.stream(rng, pause=0.01)
        self.done("slow")

    def leave(self, rng):
        self.stream(rng, most_bytes=rng.choice([1, 300, 2000, 8000]))
        self.done("left")

    def vanish(self, rng):
        """Disconnects at any point of the request."""
        data = self.post_bytes(self.request(rng) | {"stream": rng.random() < 0.5})
        with socket.create_connection((self.server.host, self.server.port), timeout=60) as raw:
            raw.sendall(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data)
            if rng.random() < 0.5:
                time.sleep(rng.random() * 0.3)
            if rng.random() < 0.5:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.done("vanished")

    def nonsense(self, rng):
        good = json.dumps(self.request(rng)).encode()
        cut = good[: rng.randrange(len(good))]
        flipped = bytearray(good)
        flipped[rng.randrange(len(good))] = rng.choice(b'"{}[],:\\\x00\xff')
        body, must_fail = rng.choice([
            (cut, True),
            (bytes(flipped), False),  # may still be valid
            (rng.randbytes(200), True),
            (b"[" * 5000, True),
            (b'{"prompt": 7e999}', True),
            (json.dumps({"prompt": [1, -5], "max_tokens": 3}).encode(), True),
            (json.dumps({"prompt": [10**9], "max_tokens": 3}).encode(), True),
            (json.dumps({"prompt": "x", "max_tokens": -2}).encode(), True),
            (json.dumps({"prompt": "x", "temperature": "hot"}).encode(), True),
            (json.dumps({"prompt": [FIRST_ID] * (MAX_MODEL_LEN + 1)}).encode(), True),
        ])
        status, answer = self.server.post(rng.choice(["/v1/completions", "/v1/chat/completions"]), body)
        if status >= 500 or (must_fail and status < 400):
            self.complain(f"the invalid request {body[:80]!r} got HTTP {status}: {answer[:200]}")
        self.done("nonsense")

    def unload(self, rng):
        status, answer = self.server.post("/models/unload", {"model": rng.choice(self.server.models)})
        if status != 200:
            self.complain(f"unloading got HTTP {status}: {answer[:200]}")
        self.done("unloaded")

    def post_bytes(self, body):
        data = json.dumps(body).encode()
        return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data

    # ---- running ------------------------------------------------------------------------------------------------------

    def client(self, number):
        rng = random.Random(f"{self.seed} {number}")
        acts = [self.repeat, self.fresh, self.read_stream, self.slow_reader, self.leave, self.vanish, self.nonsense]
        weights = [5, 2, 2, 1, 2, 2, 2]
        if self.server.models:
            acts.append(self.unload)
            weights.append(0.5)
        if self.server.embedding:
            acts.append(self.embed)
            weights.append(3)
        while not self.stop.is_set():
            act = rng.choices(acts, weights=weights)[0]
            try:
                act(rng)
            except Exception as error:  # includes answers that are not JSON or lack a field
                self.complain(f"{act.__name__}: {error!r}")
                time.sleep(0.2)

    def watch_health(self):
        while not self.stop.wait(0.5):
            started = time.monotonic()
            try:
                status, _ = self.server.get("/health")
            except Exception as error:
                status = repr(error)
            took = time.monotonic() - started
            self.slowest_health = max(self.slowest_health, took)
            if status != 200:
                self.complain(f"/health answered {status} instead of 200")
            elif took > 2:
                self.complain(f"/health took {took:.1f} s")


def run(server, soak, arguments):
    """Runs the load and checks the bounds; problems go to soak.wrong."""
    soak.solo()
    files, server_threads = server.files(), server.threads()
    print(f"seed {soak.seed}, {arguments.clients} clients, {arguments.minutes:g} minutes\n", flush=True)
    print("|    s | repeated | fresh | streamed | slow | left | vanished | nonsense | embedded | wrong | tokens/s | RSS MiB | running | waiting |\n"
          "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    jobs = [(soak.client, (n,)) for n in range(arguments.clients)] + [(soak.watch_health, ())]
    workers = [threading.Thread(target=job, args=args, daemon=True) for job, args in jobs]
    for worker in workers:
        worker.start()
    started, seconds = time.monotonic(), arguments.minutes * 60
    baseline, highest, tokens_before, printed = 0.0, 0.0, server.metric("generation_tokens_total"), 0.0
    while server.process.poll() is None:
        time.sleep(0.5)
        elapsed = time.monotonic() - started
        rss = server.rss()
        if server.process.poll() is not None:
            break
        if elapsed < WARMUP_SHARE * seconds:
            baseline = max(baseline, rss)
        else:
            highest = max(highest, rss)
        if elapsed - printed >= 10 or elapsed >= seconds:
            tokens = server.metric("generation_tokens_total")
            columns = [soak.count[k] for k in ("repeated", "fresh", "streamed", "slow", "left", "vanished", "nonsense", "embedded", "wrong")]
            print(f"| {elapsed:4.0f} | " + " | ".join(map(str, columns)) + f" | {(tokens - tokens_before) / (elapsed - printed):.0f} | {rss:.1f} "
                  f"| {server.metric('num_requests_running'):.0f} | {server.metric('num_requests_waiting'):.0f} |", flush=True)
            tokens_before, printed = tokens, elapsed
        if elapsed >= seconds:
            break
    soak.stop.set()
    end = time.monotonic() + CLIENT_PATIENCE + 10
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    if stuck := sum(worker.is_alive() for worker in workers):
        soak.wrong.append(f"{stuck} clients are still waiting for an answer")
    if server.process.poll() is not None:
        soak.wrong.insert(0, f"the server ended with {server.process.returncode}: {server.logged()[-2000:]}")
        return

    before = {"file descriptors": files, "threads": server_threads, "requests running or waiting": 0}
    for _ in range(150):
        time.sleep(0.2)  # lets the server close the connections of metric()
        now = {"file descriptors": server.files(), "threads": server.threads(),
               "requests running or waiting": server.metric("num_requests_running") + server.metric("num_requests_waiting")}
        left = [f"{what}: {now[what]:.0f} at the end, {before[what]} at the start" for what in now if now[what] > before[what]]
        if not left:
            break
    soak.wrong += left
    total = server.printed_total()
    limit = RSS_SLACK * (total or baseline)
    if highest > limit:
        soak.wrong.append(f"RSS reached {highest:.1f} MiB; the limit is {limit:.1f} MiB, 3 % above the {'printed total' if total else 'warm-up'}")
    print(f"\nRSS at most {highest:.1f} MiB; {'printed total ' + format(total, '.1f') if total else 'after the warm-up ' + format(baseline, '.1f')} MiB. "
          f"/health took at most {1e3 * soak.slowest_health:.0f} ms.")
    server.process.send_signal(signal.SIGTERM)
    if server.process.wait(60) != 0:
        soak.wrong.append(f"SIGTERM: exit code {server.process.returncode}: {server.logged()[-500:]}")


def main():
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default=str(ROOT / "build/release/quire"), help=argparse.SUPPRESS)
    parser.add_argument("-m", "--model", action="append", help="a model, as in `quire serve -m`; may be repeated (default: smollm2)")
    parser.add_argument("--minutes", type=float, default=10, help="duration of the load (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=12, help="number of client threads (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the clients' choices (default: random, printed)")
    parser.add_argument("--embedder", action="append", default=[], help="a model that embeds texts: NAME=MODEL")
    parser.add_argument("--adapters", type=int, default=0, help="random adapters of the first model, a GGUF file (default: %(default)s)")
    parser.add_argument("flags", nargs="*", help="flags for quire serve, after --")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 30)

    server = Server(arguments.quire, arguments.model or ["smollm2"], arguments.embedder, arguments.adapters, arguments.flags or ["--max-num-seqs", "8", "--max-queue", "1000"])
    soak = Soak(server, seed)
    try:
        run(server, soak, arguments)
    except (OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
        state = "does not answer" if server.process.poll() is None else f"ended with {server.process.returncode}: {server.logged()[-2000:]}"
        soak.wrong.insert(0, f"the server {state}: {error!r}")
    finally:
        soak.stop.set()
        problems = list(soak.wrong)  # excludes those that killing the server causes
        server.process.kill()
    for problem in problems:
        print(f"VIOLATION {problem}")
    print(f"{sum(soak.count[k] for k in soak.count if k != 'wrong')} requests, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
