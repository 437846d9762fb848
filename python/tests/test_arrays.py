"""Logits and hidden states as arrays over the engine's memory."""

import numpy as np
import pytest

import quire
from quire import PoolingParams, SamplingParams

TEXTS = ["some text", "another text, which is a little longer than the first one"]


def is_view(array):
    """Whether no copy was made: what owns the memory is no array."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return not base.flags.owndata and array.dtype == np.float32


def test_logits_are_those_of_answers(tiny):
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, logprobs=1, prompt_logprobs=1)
    outputs = tiny.generate(TEXTS, params, use_tqdm=False)
    last = tiny.logits(TEXTS, use_tqdm=False)
    every = tiny.logits(TEXTS, all_tokens=True, use_tqdm=False)
    vocabulary = tiny.model_info["vocab_size"]
    for output, after, each in zip(outputs, last, every, strict=True):
        ids = output.prompt_token_ids
        assert after.shape == (vocabulary,) and each.shape == (len(ids), vocabulary)
        assert is_view(after) and is_view(each)
        assert np.array_equal(after, each[-1])
        assert int(after.argmax()) == output.outputs[0].token_ids[0]
        wide = each.astype(np.float64)
        logprobs = wide - wide.max(axis=1, keepdims=True)
        logprobs -= np.log(np.exp(logprobs).sum(axis=1, keepdims=True))
        for position, token in enumerate(ids[1:]):
            assert output.prompt_logprobs[position + 1][token].logprob == pytest.approx(logprobs[position, token], abs=1e-5)


def test_hidden_states_of_all_tokens(tiny):
    raw = tiny.encode(TEXTS, PoolingParams(use_activation=False), pooling_task="token_embed", use_tqdm=False)
    unit = tiny.encode(TEXTS, pooling_task="token_embed", use_tqdm=False)
    for text, a, b in zip(TEXTS, raw, unit, strict=True):
        states, vectors = a.outputs.data, b.outputs.data
        assert states.shape == (len(tiny.get_tokenizer().encode(text)), tiny.model_info["hidden"]) and len(a.prompt_token_ids) == len(states)
        assert is_view(states) and is_view(vectors)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert np.allclose(vectors * np.linalg.norm(states, axis=1, keepdims=True), states, atol=1e-4)
        [pooled] = tiny.encode(text, pooling_task="embed", use_tqdm=False)
        assert np.allclose(pooled.outputs.data, vectors[-1], atol=1e-6), "pooled by the last token"


def test_arrays_outlive_the_engine(load):
    llm = load("qwen3_embedding")
    [logits] = llm.logits("some text", use_tqdm=False)
    copy = logits.copy()
    llm.close()
    assert np.array_equal(logits, copy)


def test_models_without_logits_say_so(load):
    llm = load("bert")
    with pytest.raises(quire.UnsupportedError, match="has no logits"):
        llm.logits("some text", use_tqdm=False)
    [output] = llm.encode("some text", pooling_task="token_embed", use_tqdm=False)
    assert output.outputs.data.shape[1] == llm.model_info["hidden"]
    with pytest.raises(quire.UnsupportedError, match="use_activation=False"):
        llm.embed("some text", pooling_params=PoolingParams(use_activation=False), use_tqdm=False)
    with pytest.raises(quire.UnsupportedError, match="pooling_task='plugin'"):
        llm.encode("some text", pooling_task="plugin")


def test_the_results_of_a_classifier_as_they_are(load):
    llm = load("bert_cross")
    [raw] = llm.classify("some text", pooling_params=PoolingParams(use_activation=False), use_tqdm=False)
    [one] = llm.classify("some text", use_tqdm=False)
    assert one.outputs.probs == pytest.approx([1 / (1 + np.exp(-raw.outputs.probs[0]))])
