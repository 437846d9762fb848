"""The model class of lm-evaluation-harness, which runs where lm_eval is installed (it needs no torch)."""

import math

import pytest
from conftest import OPTIONS, TINY

lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: ./dev clients")

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

import quire.lm_eval
from quire import SamplingParams


@pytest.fixture(scope="module")
def model():
    lm = get_model("quire").create_from_arg_obj({"pretrained": TINY, "max_gen_toks": 8, **OPTIONS}, {"batch_size": 4, "device": None})
    assert isinstance(lm, quire.lm_eval.QuireLM)
    yield lm
    lm.llm.close()


def requests(kind, *arguments):
    return [Instance(request_type=kind, doc={}, arguments=one, idx=i) for i, one in enumerate(arguments)]


def test_the_likelihood_is_that_of_the_prompt(model):
    pairs = [("some text", " goes on"), ("abc", "d"), ("", "xyz"), ("x" * 300, "y")]
    results = model.loglikelihood(requests("loglikelihood", *pairs), disable_tqdm=True)
    ids = model.tok_encode("some text goes on")
    [output] = model.llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=0, prompt_logprobs=1), use_tqdm=False)
    start = len(model.tok_encode("some text"))
    expected = [position[token] for position, token in zip(output.prompt_logprobs[start:], ids[start:], strict=True)]
    assert results[0] == (sum(one.logprob for one in expected), all(one.rank == 1 for one in expected))
    assert all(math.isfinite(logprob) and logprob < 0 for logprob, _ in results)


def test_greedy_answers_are_recognised(model):
    ids = model.tok_encode("some text")
    [output] = model.llm.generate({"prompt_token_ids": ids}, SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)
    answer = output.outputs[0].token_ids
    other = [*answer[:-1], (answer[-1] + 1) % 256]
    results = model._loglikelihood_tokens([(None, ids, answer), (None, ids, other)], disable_tqdm=True)
    assert results[0][1] and not results[1][1] and results[0][0] > results[1][0]


def test_long_texts_are_scored_in_windows(model):
    text = "abcdefgh" * 60
    [total] = model.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)), disable_tqdm=True)
    ids = model.tok_encode(text, add_special_tokens=False)
    assert len(ids) > 2 * model.max_length
    assert math.isfinite(total) and total < 0
    short = "abcd"
    [of_short] = model.loglikelihood_rolling(requests("loglikelihood_rolling", (short,)), disable_tqdm=True)
    [(expected, _)] = model._loglikelihood_tokens([(None, [model.prefix_token_id], model.tok_encode(short, add_special_tokens=False))], disable_tqdm=True)
    assert of_short == expected


def test_answers_end_at_their_stops(model):
    [free] = model.generate_until(requests("generate_until", ("some text", {"until": [], "do_sample": False})), disable_tqdm=True)
    [output] = model.llm.generate({"prompt_token_ids": model.tok_encode("some text")}, SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)
    assert free == output.outputs[0].text
    cut, sampled, short = model.generate_until(
        requests(
            "generate_until",
            ("some text", {"until": [free[2:4]]}),
            ("some text", {"until": "zzz", "do_sample": True, "temperature": 0.7, "top_p": 0.9}),
            ("x" * 500, {"until": [], "max_gen_toks": 2}),
        ),
        disable_tqdm=True,
    )
    assert cut == free[: free.index(free[2:4])] and isinstance(sampled, str) and len(short) <= 16
