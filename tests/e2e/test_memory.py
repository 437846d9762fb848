"""No request takes the server beyond --memory: the largest bodies of every endpoint, eight at once, with a full KV cache."""

import concurrent.futures
import http.client
import json
import pathlib
import random
import re

import pytest

from conftest import eventually, served

BUDGET_MIB = 400
BODY_BYTES = 8_300_000  # --max-body-size is 8 MiB


def filled(head, part, tail, bytes=BODY_BYTES):
    """head, as many parts as fit, tail. @ in a part is its number."""
    size = len(part.replace("@", "0000000"))
    numbered = (part.replace("@", f"{i:07d}") for i in range((bytes - len(head) - len(tail)) // size))
    return head + "".join(numbered)[:-1] + tail  # the last part ends in a comma


def chat(head, part, tail, **sizes):
    return "/v1/chat/completions", filled('{"max_tokens":1,"messages":[{"role":"user","content":"x"}],' + head, part, tail + "}", **sizes)


def completion(**fields):
    return "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1, **fields})


def schema(head, part, tail, **sizes):
    format = '"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":'
    return chat(format + head, part, tail + "}}", **sizes)


def properties(path, head, tail, property='"@":{"type":"string"},'):
    return path, filled(head + '{"type":"object","properties":{', property, "}}" + tail)


MESSAGE = '{"role":"user","content":"@"},'
HOSTILE = {
    # trees of JSON
    "nested arrays": lambda: chat('"x":[', "[" * 60 + "]" * 60 + ",", "]"),
    "nested objects": lambda: chat('"x":[', '{"a":' * 60 + "1" + "}" * 60 + ",", "]"),
    "a wide object": lambda: chat('"x":{', '"@":0,', "}"),
    "empty objects": lambda: chat('"x":[', "{},", "]"),
    "objects with a key": lambda: chat('"x":[', '{"":""},', "]"),
    "short strings": lambda: chat('"x":[', '"' + "a" * 16 + '",', "]"),
    "escapes": lambda: chat('"x":["', "\\u00e9" * 100 + " ", '"]'),
    "long numbers": lambda: chat('"x":[', "1.2345678901234567e300,", "]"),
    "a schema in a string": lambda: completion(guided_json=filled('{"properties":{', '"@":{},', "}}", bytes=6_000_000)),
    # schemas, regexes, grammars
    "properties": lambda: schema('{"type":"object","properties":{', '"@":{},', "}}"),
    "alternatives": lambda: schema('{"anyOf":[', '{"const":1@},', "]}"),
    "an enum": lambda: schema('{"enum":[', '"@",', "]}", bytes=900_000),
    "constants": lambda: schema('{"anyOf":[', '{"const":"@"},', "]}", bytes=900_000),
    "patterns": lambda: schema('{"properties":{', '"@":{"pattern":"(a|b{1,90}){9,99}"},', "}}", bytes=900_000),
    "a long regex": lambda: completion(guided_regex="a" * 1_000_000),
    "a regex of alternatives": lambda: completion(guided_regex="|" * 1_000_000),
    "a regex of classes": lambda: completion(guided_regex="[a-c]x*" * 60_000),
    "a regex of counts": lambda: completion(guided_regex="(a|bc{1,1000}){1,90000}"),
    "a grammar of alternatives": lambda: completion(grammar="root ::= " + "|" * 1_000_000),
    "a grammar of rules": lambda: completion(grammar="root ::= r0\n" + "".join(f'r{i} ::= "{i}" | r{i + 1}\n' for i in range(30_000)) + 'r30000 ::= "x"'),
    "choices": lambda: completion(guided_choice=[f"{i:07d}" + "c" * 2000 for i in range(4000)]),
    # histories and tools
    "a long message": lambda: ("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "word " * (BODY_BYTES // 5)}]})),
    "messages": lambda: ("/v1/chat/completions", filled('{"messages":[', MESSAGE, "]}")),
    "100,000 messages": lambda: ("/v1/chat/completions", filled('{"messages":[', MESSAGE.replace("@", "@" + "y" * 45), "]}")),
    "parts": lambda: ("/v1/chat/completions", filled('{"messages":[{"role":"user","content":[', '{"type":"text","text":"@"},', "]}]}")),
    "calls": lambda: ("/v1/chat/completions", filled(
        '{"messages":[{"role":"assistant","tool_calls":[', '{"id":"@","type":"function","function":{"name":"f","arguments":"{}"}},', "]}]}")),
    "an image": lambda: ("/v1/chat/completions", filled(
        '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,', "A" * 64, '"}}]}]}')),
    "a tool's properties": lambda: properties("/v1/chat/completions", '{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":', "}}]}"),
    "variables": lambda: chat('"chat_template_kwargs":{', '"@":[],', "}"),
    "Anthropic's messages": lambda: ("/v1/messages", filled('{"max_tokens":1,"messages":[', MESSAGE, "]}")),
    "Anthropic's tools": lambda: properties("/v1/messages", '{"max_tokens":1,"messages":[],"tools":[{"name":"f","input_schema":', "}]}"),
    "counted messages": lambda: ("/v1/messages/count_tokens", filled('{"messages":[', MESSAGE, "]}")),
    "items": lambda: ("/v1/responses", filled('{"input":[', MESSAGE, "]}")),
    "a response's format": lambda: properties("/v1/responses", '{"input":"x","text":{"format":{"type":"json_schema","name":"a","schema":', "}}}"),
    "Ollama's messages": lambda: ("/api/chat", filled('{"messages":[', MESSAGE, "]}")),
    "Ollama's format": lambda: properties("/api/generate", '{"prompt":"x","format":', "}"),
    # texts and tokens
    "a prompt": lambda: completion(prompt="1" * BODY_BYTES),
    "prompts": lambda: completion(prompt=["word " * 800] * 2040),
    "prompts of tokens": lambda: completion(prompt=[[7] * 480] * 2040),
    "a prompt of tokens": lambda: completion(prompt=[5] * 990_000),
    "stop strings": lambda: completion(stop=[f"s{i:07d}" for i in range(600_000)]),
    "bad words": lambda: completion(bad_words=[f"s{i:07d}" for i in range(600_000)]),
    "token ids": lambda: completion(logit_bias={str(i): 1 for i in range(49_000)}, allowed_token_ids=list(range(49_000))),
    "prompts with biases": lambda: completion(prompt=["x"] * 2040, logit_bias={str(i): 1 for i in range(1000)}),
    "log-probabilities": lambda: completion(prompt="word " * 400, echo=True, logprobs=20, n=16),
    "inputs": lambda: ("/v1/embeddings", json.dumps({"input": ["word " * 800] * 2040})),
    "documents": lambda: ("/v1/rerank", json.dumps({"query": "x", "documents": ["word " * 800] * 2040})),
    "pairs": lambda: ("/v1/score", json.dumps({"text_1": "x", "text_2": ["word " * 800] * 2040})),
    "Ollama's inputs": lambda: ("/api/embed", json.dumps({"input": ["word " * 800] * 2040})),
    "a text": lambda: ("/tokenize", json.dumps({"prompt": "1" * BODY_BYTES, "return_token_strs": True})),
    "tokens": lambda: ("/detokenize", json.dumps({"tokens": [5] * 990_000})),
    "a file": lambda: ("/infill", json.dumps({"input_prefix": "1" * 4_000_000, "input_suffix": "1" * 4_000_000})),
    "files": lambda: ("/infill", filled('{"input_prefix":"x","input_suffix":"y","input_extra":[', '{"filename":"a","text":"@"},', "]}")),
}


def post(running, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def memory_mib(running, name):
    status = (pathlib.Path("/proc") / str(running.process.pid) / "status").read_text()
    return int(re.search(name + r":\s+(\d+)", status).group(1)) >> 10


def fill_cache(running):
    rng = random.Random(1)
    for _ in range(40):
        post(running, "/v1/completions", json.dumps({"max_tokens": 1, "prompt": [rng.randrange(100, 400) for _ in range(300)]}))
        idle = re.search(r"kv_cache_idle_perc\{\S* (\S+)", read_metrics(running)).group(1)
        if float(idle) > 0.95:
            return
    pytest.fail(f"the cache does not fill: {idle}")


def read_metrics(running):
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


@pytest.fixture(scope="module")
def full_server():
    """With a full KV cache."""
    with served("--memory", f"{BUDGET_MIB}MiB", "--timeout", "2") as running:  # what is computed does not matter here
        fill_cache(running)
        (pathlib.Path("/proc") / str(running.process.pid) / "clear_refs").write_text("5")  # forgets the peak of loading
        yield running


def test_the_largest_bodies_of_all_endpoints_stay_within_the_budget(full_server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = dict(zip(HOSTILE, pool.map(lambda make: post(full_server, *make()), HOSTILE.values())))
    for name, (status, body) in answers.items():
        assert status in (200, 400, 413, 429, 503, 504), (name, status, body[:300])
        if status != 200:
            assert json.loads(body)["error"], (name, body[:300])
    assert memory_mib(full_server, "VmHWM") <= BUDGET_MIB
    assert post(full_server, "/v1/completions", '{"prompt":"x","max_tokens":1}')[0] == 200


@pytest.mark.parametrize("name", ["properties", "alternatives", "a long regex", "messages", "prompts with biases"])
def test_eight_of_them_at_once_stay_within_the_budget(full_server, name):
    path, body = HOSTILE[name]()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = [status for status, _ in pool.map(lambda _: post(full_server, path, body), range(8))]
    assert set(statuses) <= {200, 400, 413, 429, 503, 504}
    assert memory_mib(full_server, "VmHWM") <= BUDGET_MIB


def test_what_was_freed_goes_back_to_the_system(full_server):
    before = memory_mib(full_server, "VmRSS")
    post(full_server, *HOSTILE["properties"]())
    assert eventually(lambda: memory_mib(full_server, "VmRSS") <= before + 16), (before, memory_mib(full_server, "VmRSS"))


def test_the_message_names_limit_and_place(full_server):
    status, body = post(full_server, *HOSTILE["properties"]())
    error = json.loads(body)["error"]
    assert status == 413 and error["code"] == "request_too_large"
    assert re.match(r"reading JSON, at response_format\.json_schema\.schema\.properties\.\d+, takes more than 51200 KiB of memory", error["message"])
