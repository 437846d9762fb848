"""Figures of prompts: log-probabilities, vectors, what the prefix cache held."""

import math

import pytest

from conftest import GOLDEN, Server, skip_without_binary
from test_server import post


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_embeddings(client):
    texts = ["The cat sleeps on the sofa.", "A cat is sleeping on the couch.", "Interest rates rose by half a percent."]
    vectors = [e.embedding for e in client.embeddings.create(model="smollm2", input=texts).data]  # the client asks for base64
    assert len(vectors[0]) == 576 and all(abs(sum(x * x for x in v) - 1) < 1e-4 for v in vectors)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    floats = client.embeddings.create(model="smollm2", input=texts[0], encoding_format="float").data[0].embedding
    assert floats == pytest.approx(vectors[0], abs=1e-6)
    last = client.embeddings.create(model="smollm2", input=texts[0], extra_body={"pooling": "last"}).data[0].embedding
    assert cosine(last, floats) < 0.9999


def test_echo_scores_the_prompt(client):
    """What lm_eval's local-completions asks for."""
    ids = [504, 3575, 282, 4649, 314, 7042]
    scored = client.completions.create(model="smollm2", prompt=[ids, ids[:3]], echo=True, logprobs=1, max_tokens=1, temperature=0)
    for choice, prompt in zip(scored.choices, (ids, ids[:3])):
        logprobs = choice.logprobs
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == len(prompt) + 1
        assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
        assert all(value <= 0 for value in logprobs.token_logprobs[1:])
        assert "".join(logprobs.tokens) == choice.text
    assert scored.choices[0].logprobs.token_logprobs[1:3] == scored.choices[1].logprobs.token_logprobs[1:3]
    # The prompt's figures are those the model gives when it writes the same tokens itself.
    wrote = client.completions.create(model="smollm2", prompt=ids[:3], logprobs=0, max_tokens=3, temperature=0, extra_body={"return_token_ids": True}).choices[0]
    again = client.completions.create(model="smollm2", prompt=ids[:3] + wrote.token_ids, echo=True, logprobs=0, max_tokens=0).choices[0]
    assert again.logprobs.token_logprobs[3:] == wrote.logprobs.token_logprobs


def test_prompt_logprobs(server):
    status, answer = post(server, "/v1/completions", {"prompt": "The capital of France is", "prompt_logprobs": 2, "max_tokens": 1})
    assert status == 200
    figures = answer["choices"][0]["prompt_logprobs"]
    assert figures[0] is None and len(figures) == answer["usage"]["prompt_tokens"]
    assert all(2 <= len(entry) <= 3 for entry in figures[1:])


def test_cached_tokens_are_told(server):
    ask = {"prompt": "a long shared beginning " * 40, "max_tokens": 1}
    first, second = (post(server, "/v1/completions", ask)[1]["usage"] for _ in range(2))
    assert second["prompt_tokens_details"]["cached_tokens"] > first["prompt_tokens"] // 2
    salted = post(server, "/v1/completions", ask | {"cache_salt": "another"})[1]["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


def test_special_tokens_can_be_shown(client):
    forced = {"model": "smollm2", "prompt": "Say", "max_tokens": 2, "temperature": 0, "logit_bias": {"1": 100}}  # <|im_start|>
    assert client.completions.create(**forced).choices[0].text == ""
    shown = client.completions.create(**forced, extra_body={"skip_special_tokens": False})
    assert shown.choices[0].text == "<|im_start|>" * 2


def test_tokens_have_their_ids_as_names_without_a_vocabulary():
    skip_without_binary()
    running = Server("--kv-cache-size", "16mb", model=GOLDEN / "models/llama")
    try:
        status, answer = post(running, "/v1/completions", {"prompt": [1, 5, 9], "max_tokens": 2, "temperature": 0, "logprobs": 1})
        assert status == 200, answer
        names = answer["choices"][0]["logprobs"]["tokens"]
        assert len(names) == 2 and all(name.startswith("token_id:") for name in names)
    finally:
        code, log = running.stop()
    assert code == 0, log
