"""Replicas behind real routers: equal bits, better hit rates than in turn, and no request lost when replicas leave."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from conftest import ROOT, Server, eventually, skip_without_binary_and_model
from test_kv_events import free_port

yaml = pytest.importorskip("yaml", reason="no PyYAML")

FOLDER = pathlib.Path(os.environ.get("QUIRE_ROUTERS", ROOT / "build/routers-venv/bin"))
REPLICAS = 3


def program(name):
    path = shutil.which(name, path=f"{FOLDER}:{os.environ['PATH']}")
    if not path:
        pytest.skip(f"no {name}: ./dev routers")
    return path


class Replica:
    """A server that keeps its port when it starts again."""

    def __init__(self):
        self.port, self.events = free_port(), f"tcp://127.0.0.1:{free_port()}"
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.server = Server("-t", "1", "--max-model-len", "2048", "--max-num-seqs", "16", "--drain", "4", "--kv-events", self.events, "--kv-events-format", "map", port=self.port)


@pytest.fixture(scope="module")
def running():
    skip_without_binary_and_model()
    replicas = [Replica() for _ in range(REPLICAS)]
    yield replicas
    for replica in replicas:
        replica.server.process.kill()
        replica.server.process.communicate()


@pytest.fixture
def replicas(running):
    """Three replicas that have nothing cached: each test begins with fresh prompts."""
    for replica in running:
        if replica.server.process.poll() is not None:
            replica.start()
    return running


# Its circuit breaker would leave a replica that refused requests while it drained alone for 60 s.
def vllm_router(policy, replicas, port, folder):
    flags = ["--kv-event-model", "smollm2", *[f"--kv-event-source={r.url}={r.events}" for r in replicas]] if policy == "kv_aware" else []
    return [program("vllm-router"), "--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port(), "--policy", policy,
            "--worker-startup-check-interval", 1, "--health-check-interval-secs", 1, "--health-failure-threshold", 1,
            "--health-success-threshold", 1, "--cb-timeout-duration-secs", 5, *flags, "--worker-urls", *[r.url for r in replicas]]  # fmt: skip


def smg(policy, replicas, port, folder):
    return [program("smg"), "launch", "--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port(), "--policy", policy,
            "--worker-startup-check-interval", 1, "--health-check-interval-secs", 1, "--health-failure-threshold", 1,
            "--health-success-threshold", 1, "--shutdown-grace-period-secs", 1, "--worker-urls", *[r.url for r in replicas]]  # fmt: skip


def envoy(policy, replicas, port, folder):
    config = yaml.safe_load((ROOT / "deploy/envoy.yaml").read_text())
    resources = config["static_resources"]
    resources["listeners"][0]["address"] = address(port)
    cluster = resources["clusters"][0]
    cluster["type"] = "STATIC"
    cluster["lb_policy"] = {"round_robin": "ROUND_ROBIN", "power_of_two": "LEAST_REQUEST", "session": "RING_HASH"}[policy]
    cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": [{"endpoint": {"address": address(r.port)}} for r in replicas]}]
    (folder / "envoy.yaml").write_text(yaml.safe_dump(config))
    return [program("envoy"), "-c", folder / "envoy.yaml", "--base-id", port, "--concurrency", 1, "-l", "warning"]


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


ROUTERS = {"vllm-router": vllm_router, "smg": smg, "envoy": envoy}


@contextlib.contextmanager
def router(name, policy, replicas, folder):
    """A router before the replicas; gives its URL."""
    port = free_port()
    with open(folder / f"{name}-{policy}.log", "w") as log:
        process = subprocess.Popen([*map(str, ROUTERS[name](policy, replicas, port, folder))], stdout=log, stderr=subprocess.STDOUT)
        url = f"http://127.0.0.1:{port}"
        try:
            assert eventually(lambda: answers(url), 60), pathlib.Path(log.name).read_text()[-3000:]
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(url):
    try:
        return bool(complete(url, "Hello", 1)[0])
    except (OSError, urllib.error.HTTPError, json.JSONDecodeError):
        return False


def complete(url, prompt, tokens=8, stream=False, session="", seed=7):
    """The answer's text and its usage."""
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "temperature": 0.8, "seed": seed, "stream": stream}
    headers = {"Content-Type": "application/json", "X-Session-Id": session}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers), timeout=120) as response:
        text = response.read().decode()
    if not stream:
        answer = json.loads(text)
        return answer["choices"][0]["text"], answer["usage"]
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]", text
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1] if json.loads(event)["choices"]), {}


PROMPTS = [f"Number {i} of the stories of the sea begins in a harbour where" for i in range(12)]


@pytest.fixture(scope="module")
def alone(running):
    """What one replica answers."""
    return [complete(running[0].url, prompt)[0] for prompt in PROMPTS]


def metric(replica, name):
    text = urllib.request.urlopen(replica.url + "/metrics").read().decode()
    return sum(float(value) for value in re.findall(rf"^quire:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))


CACHE_AWARE = [("vllm-router", "cache_aware"), ("vllm-router", "kv_aware"), ("smg", "cache_aware"), ("envoy", "session")]
BALANCED = [("vllm-router", "power_of_two"), ("smg", "power_of_two"), ("envoy", "power_of_two")]


@pytest.mark.parametrize("name, policy", CACHE_AWARE + BALANCED)
def test_the_bits_are_those_of_one_server(replicas, alone, tmp_path, name, policy):
    with router(name, policy, replicas, tmp_path) as url, concurrent.futures.ThreadPoolExecutor(6) as pool:
        for stream in (False, True):
            assert list(pool.map(lambda prompt: complete(url, prompt, stream=stream)[0], PROMPTS)) == alone


fresh = itertools.count()


def hit_rate(url, conversations=7, turns=4):
    """The part of the prompts' tokens that was cached, of conversations that take turns."""
    run, texts, cached, asked = next(fresh), {}, 0, 0
    for turn in range(turns):
        for i in range(conversations):
            texts[i] = texts.get(i, f"Run {run}, conversation {i}. " + f"The keeper of lighthouse {i} wrote down what the ships said. " * 8) + f"\nTurn {turn}:"
            text, usage = complete(url, texts[i], session=f"{run}-{i}")
            texts[i] += text
            cached += usage["prompt_tokens_details"]["cached_tokens"]
            asked += usage["prompt_tokens"]
    return cached / asked


@pytest.mark.parametrize("name, policy", CACHE_AWARE)
def test_a_router_that_knows_prefixes_hits_more_often_than_one_that_takes_turns(replicas, tmp_path, name, policy):
    with router(name, "round_robin", replicas, tmp_path) as url:
        in_turn = hit_rate(url)
    before = [metric(r, "prefix_cache_hits_total") for r in replicas]
    with router(name, policy, replicas, tmp_path) as url:
        aware = hit_rate(url)
    print(f"{name} {policy}: {aware:.0%} of the prompts' tokens were cached, in turn {in_turn:.0%}")
    assert aware > 0.65 and aware > in_turn + 0.2, (aware, in_turn)
    assert sum(metric(r, "prefix_cache_hits_total") for r in replicas) > sum(before), "the metrics say the same"


class Load:
    """Clients that ask until the end; every answer must be right."""

    def __init__(self, url, expected, clients=6):
        self.url, self.expected, self.over = url, expected, threading.Event()
        self.asked, self.failed = 0, []
        self.threads = [threading.Thread(target=self.run, args=[i]) for i in range(clients)]

    def run(self, client):
        for i in itertools.count(client):
            if self.over.is_set():
                return
            prompt = i % len(PROMPTS)
            try:
                text = complete(self.url, PROMPTS[prompt], stream=client % 2 == 0, session=str(i))[0]
                if text != self.expected[prompt]:
                    self.failed.append((prompt, text))
            except Exception as error:
                detail = error.read().decode() if isinstance(error, urllib.error.HTTPError) else ""
                self.failed.append((type(error).__name__, str(error), detail))
            self.asked += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize("name, policy", BALANCED)
def test_a_rolling_restart_loses_no_request(replicas, alone, tmp_path, name, policy):
    with router(name, policy, replicas, tmp_path) as url, Load(url, alone) as load:
        for replica in replicas:
            code, log = replica.server.stop()
            assert code == 0, log
            replica.start()
            began = load.asked
            assert eventually(lambda: metric(replica, "request_success_total") > 0 and load.asked > began + 10, 60), "the router does not use it again"
    assert load.asked > 50 and not load.failed, (load.asked, load.failed[:3])


@pytest.mark.parametrize("name, policy", BALANCED)
def test_a_killed_replica_fails_at_most_what_it_ran(replicas, alone, tmp_path, name, policy):
    with router(name, policy, replicas, tmp_path) as url, Load(url, alone) as load:
        assert eventually(lambda: load.asked > 20, 60)
        replicas[1].server.process.kill()
        replicas[1].server.process.communicate()
        time.sleep(3)
        failed, began = len(load.failed), load.asked
        assert eventually(lambda: load.asked > began + 20, 60)
        assert len(load.failed) == failed, load.failed
    assert failed <= len(load.threads), load.failed
