"""KV events as a router reads them: with vLLM's own structures, over ZeroMQ."""

import json
import socket
import struct
import time
import urllib.request

import pytest
from conftest import GOLDEN, Server, quire, skip_without_binary
from test_server import post

msgspec = pytest.importorskip("msgspec", reason="no msgspec")
zmq = pytest.importorskip("zmq", reason="no pyzmq")

PAGE = 16


# As in vllm/distributed/kv_events.py.
class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list
    data_parallel_rank: int | None = None


def structures(**layout):
    """The events: first arrays (array_like), in later releases maps."""

    class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True, **layout):
        pass

    class BlockStored(KVCacheEvent):
        block_hashes: list[bytes | int]
        parent_block_hash: bytes | int | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None

    class BlockRemoved(KVCacheEvent):
        block_hashes: list[bytes | int]
        medium: str | None

    class AllBlocksCleared(KVCacheEvent):
        pass

    class KVEventBatch(EventBatch):
        events: list[BlockStored | BlockRemoved | AllBlocksCleared]

    return KVEventBatch


FORMATS = {"array": structures(array_like=True), "map": structures()}


class Index:
    """The pages that a replica has, rebuilt from its events: the prompt's tokens up to the end of each, by hash."""

    def __init__(self, form="array"):
        self.prefixes, self.removed, self.next, self.batch = {}, 0, None, FORMATS[form]

    def take(self, number, payload):
        assert self.next in (None, number), "a message is missing"
        self.next = number + 1
        batch = msgspec.msgpack.decode(payload, type=self.batch)
        assert abs(batch.ts - time.time()) < 120 and batch.data_parallel_rank == 0
        for event in batch.events:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.prefixes.clear()
            elif kind == "BlockRemoved":
                for block in event.block_hashes:
                    del self.prefixes[block]
                    self.removed += 1
            else:
                assert event.block_size == PAGE and event.medium == "GPU" and event.lora_id is None
                assert len(event.token_ids) == PAGE * len(event.block_hashes)
                before = () if event.parent_block_hash is None else self.prefixes[event.parent_block_hash]
                for i, block in enumerate(event.block_hashes):
                    before += tuple(event.token_ids[i * PAGE : (i + 1) * PAGE])
                    self.prefixes[block] = before

    def hit(self, prompt):
        """How many pages of the prompt are cached, from its beginning on."""
        known = set(self.prefixes.values())
        return next(n for n in range(len(prompt) // PAGE, -1, -1) if n == 0 or tuple(prompt[: n * PAGE]) in known)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Subscriber:
    def __init__(self, endpoint, topic=b"", form="array"):
        self.index, self.topics = Index(form), set()
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self.socket.connect(endpoint)

    def read(self, milliseconds=300):
        while self.socket.poll(milliseconds):
            topic, number, payload = self.socket.recv_multipart()
            self.topics.add(topic)
            self.index.take(struct.unpack(">Q", number)[0], payload)

    def close(self):
        self.context.destroy(linger=0)


def complete(server, prompt, tokens=1, **fields):
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True, "ignore_eos": True, **fields}
    status, answer = post(server, "/v1/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["token_ids"], (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def prompt_of(number, length=100):
    return [3 + (number * 31 + i * i * 7 + i) % 190 for i in range(length)]


@pytest.fixture
def published():
    """A server with few pages, which publishes, and a subscriber that has heard everything."""
    skip_without_binary()
    events, replays = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    server = Server("--kv-events", events, "--kv-events-replay", replays, "--kv-events-topic", "kv@here@tiny", "--max-model-len", "256", "-t", "1",
                    "--max-num-seqs", "1", "--kv-cache-size", "120KB", model=GOLDEN / "models/qwen2", name="tiny")
    subscriber = Subscriber(events, b"kv@")
    try:
        yield server, subscriber, replays
    finally:
        subscriber.close()
        code, log = server.stop()
    assert code == 0, log


def test_events_say_what_will_be_a_hit(published):
    server, subscriber, replays = published
    subscriber.read(1000)
    complete(server, prompt_of(0))
    subscriber.read()
    assert subscriber.index.next == 1
    for i in range(200):
        prompt = prompt_of(i * 5 % 23)
        subscriber.read(30)
        known = subscriber.index.hit(prompt[:-1])
        cached = complete(server, prompt)[1]
        assert known * PAGE <= cached < (known + 1) * PAGE, (i, known, cached)
    assert subscriber.index.removed > 0, "the cache was never full"
    subscriber.read()
    assert subscriber.topics == {b"kv@here@tiny"}
    replayed = replay(replays, 0)
    assert [number for number, _ in replayed] == list(range(subscriber.index.next))
    index = Index()
    for message in replayed:
        index.take(*message)
    assert index.prefixes == subscriber.index.prefixes
    metrics = urllib.request.urlopen(server.base + "/metrics").read().decode()
    assert f"quire:kv_event_batches_total {len(replayed)}\n" in metrics and "quire:kv_events_lost_total 0\n" in metrics


def replay(endpoint, first):
    """As vLLM's examples ask for what they missed."""
    context = zmq.Context()
    client = context.socket(zmq.DEALER)
    client.connect(endpoint)
    client.send_multipart([b"", struct.pack(">Q", first)])
    messages = []
    while True:
        assert client.poll(10_000), "the replay has no end"
        _, number, payload = client.recv_multipart()
        if number == b"\xff" * 8:
            break
        messages.append((struct.unpack(">Q", number)[0], payload))
    context.destroy(linger=0)
    return messages


def test_answers_are_pages_too_and_all_go_with_the_server(published):
    server, subscriber, _ = published
    subscriber.read(1000)
    prompt = prompt_of(1, 40)
    answer = complete(server, prompt, 60)[0]
    subscriber.read()
    assert subscriber.index.hit(prompt + answer) == (40 + 59) // PAGE
    server.stop()
    subscriber.read(2000)
    assert subscriber.index.prefixes == {}


def test_a_subscriber_that_never_reads_holds_up_nobody(published):
    server, subscriber, _ = published
    subscriber.socket.setsockopt(zmq.RCVHWM, 1)
    first = [complete(server, prompt_of(i))[0] for i in range(30)]
    assert [complete(server, prompt_of(i))[0] for i in range(30)] == first


@pytest.mark.parametrize("form", FORMATS)
def test_vllms_config_does_the_same(form):
    skip_without_binary()
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    server = Server("--kv-events-config", json.dumps({"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}),
                    "--kv-events-format", form, model=GOLDEN / "models/qwen2", name="tiny")
    subscriber = Subscriber(endpoint, form=form)
    subscriber.read(1000)
    complete(server, prompt_of(0))
    subscriber.read()
    assert subscriber.index.hit(prompt_of(0)) == 6
    subscriber.close()
    assert server.stop()[0] == 0


def test_only_loopback_is_quiet_about_who_listens():
    skip_without_binary()
    server = Server("--kv-events", f"tcp://*:{free_port()}", model=GOLDEN / "models/qwen2", name="tiny")
    code, log = server.stop()
    assert code == 0 and "the tokens of all prompts" in log


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--kv-events", "5557"], "tcp://HOST:PORT"),
        (["--kv-events-config", "{"], "--kv-events-config"),
        (["--kv-events-config", '{"publisher": "kafka"}'], "kafka"),
        (["--kv-events-config", '{"port": 5557}'], "no field"),
        (["--kv-events-replay", "tcp://127.0.0.1:5558"], "--kv-events"),
        (["--no-prefix-cache", "--kv-events", "tcp://127.0.0.1:5557"], "prefix cache"),
    ],
)
def test_wrong_flags_are_refused(flags, message):
    done = quire("serve", "-m", GOLDEN / "models/qwen2", "--port", "0", *flags, timeout=30)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_several_models_have_no_events():
    models = [part for name in ("qwen2", "mistral") for part in ("-m", f"{name}={GOLDEN / 'models' / name}")]
    done = quire("serve", *models, "--port", "0", "--kv-events", "tcp://127.0.0.1:5557", timeout=30)
    assert done.returncode == 2 and "one model" in done.stderr


def test_an_endpoint_in_use_is_a_clear_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        done = quire("serve", "-m", GOLDEN / "models/qwen2", "--port", "0", "--kv-events", endpoint, timeout=30)
    assert done.returncode == 1 and f"{endpoint}: Address already in use" in done.stderr
