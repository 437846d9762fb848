"""Wrong types, shapes and values raise an exception that names them; nothing crashes."""

import copy
import math
import pickle

import numpy as np
import pytest

import quire
from quire import LLM, SamplingParams, StructuredOutputsParams, _quire


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"temperature": "hot"}, TypeError, "temperature must be a number, not str"),
        ({"temperature": math.nan}, ValueError, "temperature"),
        ({"temperature": math.inf}, ValueError, "temperature"),
        ({"temperature": -1}, ValueError, "temperature"),
        ({"temperature": 10**400}, ValueError, "temperature is too large"),
        ({"temperature": True}, TypeError, "temperature must be a number, not bool"),
        ({"temperature": None}, TypeError, "temperature"),
        ({"top_k": 1.5}, TypeError, "top_k must be an int, not float"),
        ({"top_k": 2**40}, ValueError, "top_k must be between"),
        ({"top_k": -2}, ValueError, "top_k"),
        ({"top_p": 1.1}, ValueError, "top_p"),
        ({"n": 0}, ValueError, "n must be between 1 and 128, not 0"),
        ({"n": 10**30}, ValueError, "n must be between"),
        ({"max_tokens": -1}, ValueError, "max_tokens"),
        ({"max_tokens": "3"}, TypeError, "max_tokens must be an int"),
        ({"min_tokens": 20}, ValueError, "min_tokens"),
        ({"seed": -5}, ValueError, "seed must be between"),
        ({"seed": 2**64}, ValueError, "seed must be between"),
        ({"stop": [""]}, ValueError, "stop"),
        ({"stop": [3]}, TypeError, r"stop\[0\] must be a str, not int"),
        ({"stop": {"a"}}, TypeError, "stop must be a list, not set"),
        ({"stop": ["\ud800"]}, ValueError, "surrogates"),
        ({"stop_token_ids": [2**31]}, ValueError, r"stop_token_ids\[0\] must be between"),
        ({"stop_token_ids": [-1]}, ValueError, "stop_token_ids"),
        ({"stop_token_ids": "12"}, TypeError, "stop_token_ids must be a list"),
        ({"logit_bias": [1]}, TypeError, "logit_bias must be a dict"),
        ({"logit_bias": {1: math.nan}}, ValueError, "logit_bias"),
        ({"logit_bias": {"a": 1}}, TypeError, "a key of logit_bias must be an int"),
        ({"allowed_token_ids": []}, ValueError, "allowed_token_ids must not be empty"),
        ({"bad_words": [""]}, ValueError, "bad_words"),
        ({"logprobs": -1}, ValueError, "logprobs"),
        ({"logprobs": 5000}, ValueError, "logprobs"),
        ({"skip_special_tokens": 1}, TypeError, "skip_special_tokens must be a bool"),
        ({"detokenize": 0}, TypeError, "detokenize must be a bool"),
        ({"output_kind": 1}, TypeError, "output_kind"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"timeout": math.nan}, ValueError, "timeout"),
        ({"truncate_prompt_tokens": 0}, ValueError, "truncate_prompt_tokens"),
        ({"structured_outputs": "json"}, TypeError, "structured_outputs"),
        ({"structured_outputs": {}}, ValueError, "exactly one"),
        ({"structured_outputs": {"json": "{}", "regex": "a"}}, ValueError, "exactly one"),
        ({"structured_outputs": {"json": 3}}, TypeError, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, NotImplementedError, "whitespace_pattern"),
        ({"best_of": 3}, NotImplementedError, "best_of is not supported; use n"),
        ({"logits_processors": [print]}, NotImplementedError, "logits_processors"),
        ({"flat_logprobs": True}, NotImplementedError, "flat_logprobs"),
        ({"thinking_token_budget": 5}, NotImplementedError, "thinking_token_budget"),
        ({"logprob_token_ids": [1]}, NotImplementedError, "logprob_token_ids"),
        ({"extra_args": {"a": 1}}, NotImplementedError, "extra_args"),
        ({"no_such": 1}, TypeError, "no_such"),
    ],
)
def test_sampling_parameters(values, error, message):
    with pytest.raises(error, match=message):
        params = SamplingParams(**values)
        if params.structured_outputs is not None:
            params.structured_outputs._source()


def test_parameters_that_were_changed_are_checked_again(tiny):
    params = SamplingParams()
    params.top_p = 7
    with pytest.raises(ValueError, match="top_p"):
        tiny.generate("x", params)
    params = SamplingParams()
    params.min_p = "x"
    with pytest.raises(TypeError, match="min_p"):
        tiny.generate("x", params)


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        (None, TypeError),
        (3, TypeError),
        (3.5, TypeError),
        (b"bytes", (TypeError, ValueError)),
        ([None], TypeError),
        ([1.5], TypeError),
        ([True], TypeError),
        ([[1.0, 2.0]], TypeError),
        ([[]], ValueError),
        (np.zeros((2, 2, 2), int), TypeError),
        (np.array([0.5, 1.0]), TypeError),
        (np.array([1 + 2j]), TypeError),
        ([-1], ValueError),
        ([10**6], ValueError),
        ([2**31], ValueError),
        ([2**70], TypeError),
        (np.array([2**63], np.uint64), ValueError),
        ({}, ValueError),
        ({"prompt": 3}, TypeError),
        ({"prompt_token_ids": []}, ValueError),
        ({"prompt_token_ids": [[1]]}, TypeError),
        ({"prompt": "x", "multi_modal_data": {"image": 1}}, NotImplementedError),
        ({"prompt": "x", "cache_salt": 3}, TypeError),
        ("\ud800", ValueError),
        ("word " * 5000, ValueError),
    ],
)
def test_prompts(tiny, prompt, error):
    with pytest.raises(error):
        tiny.generate(prompt, SamplingParams(max_tokens=1), use_tqdm=False)


@pytest.mark.parametrize(
    ("messages", "error", "message"),
    [
        ("text", TypeError, "messages"),
        ([], ValueError, "empty"),
        ([3], TypeError, "messages"),
        ([{"content": "x"}], ValueError, r"messages\[0\] needs a role"),
        ([{"role": "user"}], ValueError, r"messages\[0\] needs a content"),
        ([{"role": "user", "content": 3}], TypeError, r"messages\[0\].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], NotImplementedError, "image_url"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}], ValueError, "arguments is not JSON"),
        ([{"role": "user", "content": "x", "extra": math.nan}], ValueError, "JSON"),
        ([{"role": "user", "content": "x", "extra": object()}], TypeError, "JSON"),
    ],
)
def test_messages(smollm2, messages, error, message):
    with pytest.raises(error, match=message):
        smollm2.chat(messages, SamplingParams(max_tokens=1), use_tqdm=False)


def test_arguments_of_methods(tiny):
    for call in (
        lambda: tiny.generate("x", 3),
        lambda: tiny.generate("x", [3]),
        lambda: tiny.embed("x", pooling_params=SamplingParams()),
        lambda: tiny.embed("x", pooling_params=3),
        lambda: tiny.generate("x", use_tqdm=lambda **_: 3),
    ):
        with pytest.raises((TypeError, AttributeError)):
            call()
    with pytest.raises(quire.UnsupportedError, match="beam search"):
        tiny.beam_search("x", quire.BeamSearchParams(2, 3))
    with pytest.raises(quire.InvalidError, match="priorities"):
        tiny.generate(["a", "b"], priority=[1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "/no/such/file.gguf"}, FileNotFoundError, "/no/such/file.gguf"),
        ({"model": "facebook/opt-125m"}, FileNotFoundError, "Download the model first"),
        ({"model": 3}, TypeError, "model must be a str"),
        ({"model": __file__}, quire.QuireError, "test_bad_input"),
        ({"threads": 10**6}, ValueError, "threads"),
        ({"threads": 1.0}, TypeError, "threads must be an int"),
        ({"no_such_option": 1}, TypeError, "no option of the engine is called no_such_option"),
        ({"max_num_seqs": 0}, ValueError, "max-num-seqs"),
        ({"max_model_len": 2**40}, ValueError, "max_model_len must be between"),
        ({"kv_cache_dtype": "int3"}, ValueError, "int3"),
        ({"kernels": "sse"}, ValueError, "sse"),
        ({"scheduler": "best"}, ValueError, "scheduler must be one of continuous, static, not best"),
        ({"dtype": "float16"}, NotImplementedError, "float16"),
        ({"quantization": "awq"}, NotImplementedError, "awq"),
        ({"tensor_parallel_size": 0}, ValueError, "tensor-parallel-size"),
        ({"pipeline_parallel_size": 0}, ValueError, "pipeline-parallel-size"),
        ({"device": "cuda"}, NotImplementedError, "CPU"),
        ({"gpu_memory_utilization": 0}, ValueError, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": math.nan}, ValueError, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": "all"}, TypeError, "gpu_memory_utilization"),
        ({"memory_bytes": 1}, quire.QuireError, "."),
        ({"memory_bytes": -1}, ValueError, "memory_bytes must be between"),
        ({"speculative_config": {"method": "magic"}}, ValueError, "magic"),
        ({"speculative_config": {"method": "ngram", "model": "x"}}, ValueError, "takes no model"),
        ({"speculative_config": {"method": "ngram", "foo": 1}}, NotImplementedError, "foo"),
        ({"speculative_config": 3}, TypeError, "speculative_config"),
        ({"tokenizer": "other"}, NotImplementedError, "tokenizer"),
        ({"chat_template": "{% if %}"}, ValueError, "."),
        ({"pooler_config": {"pooling_type": "STEP"}}, NotImplementedError, "STEP"),
        ({"trace_out": "/no/such/folder/x"}, quire.QuireError, "/no/such/folder"),
    ],
)
def test_options(tiny, options, error, message):
    with pytest.raises(error, match=message):
        LLM(**{"model": tiny.model_info["name"], "memory_bytes": 400 << 20, **options}).close()


def test_the_module_itself_checks_types(tiny):
    engine, queue = tiny._engine, _quire.AnswerQueue(tiny._engine)
    ids = np.array([1, 2], np.int32)
    for call in (
        lambda: _quire.Engine(3),
        lambda: _quire.Engine({3: 3}),
        lambda: _quire.AnswerQueue(3),
        lambda: _quire.AnswerQueue(None),
        lambda: engine.encode(3),
        lambda: engine.encode(None),
        lambda: engine.decode("x"),
        lambda: engine.decode(np.zeros((2, 2), np.int32)),
        lambda: engine.decode(np.zeros(2, np.float32)),
        lambda: engine.token_bytes("x"),
        lambda: engine.encode_pair(1, 2),
        lambda: queue.submit(np.zeros((2, 2), np.int32), {}),
        lambda: queue.submit(np.zeros(2, np.int64), {}),
        lambda: queue.submit(ids, None),
        lambda: queue.submit(ids, {"unknown": 1}),
        lambda: queue.submit(ids, {}, constraint=3),
        lambda: queue.submit(ids, {}, constraint={"kind": "magic"}),
        lambda: queue.submit(ids, {}, pooling=3),
        lambda: queue.submit(ids, {}, priority=2**40),
        lambda: queue.wait("x"),
        lambda: queue.take(-1),
        lambda: queue.take("x"),
        lambda: _quire.pair_score(np.zeros(2), "raw"),
    ):
        with pytest.raises((TypeError, RuntimeError)):
            call()
    for call in (
        lambda: engine.decode(np.array([-1], np.int32)),
        lambda: engine.decode(np.array([10**6], np.int32)),
        lambda: queue.submit(np.array([10**6], np.int32), {}),
        lambda: queue.submit(np.zeros(0, np.int32), {}),
        lambda: queue.submit(ids, {}, pooling="best"),
        lambda: queue.submit(ids, {}, timeout=math.nan),
        lambda: queue.wait(-1.0),
        lambda: queue.wait(math.nan),
        lambda: _quire.pair_score(np.zeros(1, np.float32), "yes_no"),
        lambda: _quire.pair_score(np.zeros(0, np.float32), "raw"),
    ):
        with pytest.raises(ValueError):
            call()
    assert queue.open() == 0 and queue.take(12345) == [] and queue.wait(0.0) == []
    queue.cancel(12345), queue.forget(12345)
    assert engine.token_bytes(10**6) == b"" and engine.token_bytes(-1) == b""


@pytest.mark.filterwarnings("ignore:nanobind")
def test_no_object_of_the_module_can_be_made_half():
    for use in (
        lambda: _quire.Engine.__new__(_quire.Engine).info(),
        lambda: _quire.Engine.__new__(_quire.Engine).close(),
        lambda: _quire.AnswerQueue.__new__(_quire.AnswerQueue).open(),
        lambda: _quire.AnswerQueue(_quire.Engine.__new__(_quire.Engine)),
        lambda: _quire.Piece().text,
        lambda: _quire.Piece.__new__(_quire.Piece).text,
    ):
        with pytest.raises((TypeError, RuntimeError)):
            use()


def test_engines_are_neither_pickled_nor_copied(tiny):
    for thing in (tiny, tiny._engine):
        for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                refuse(thing)
    params = SamplingParams(temperature=0.5, structured_outputs=StructuredOutputsParams(choice=["a"]))
    assert pickle.loads(pickle.dumps(params)) == params == params.clone()


def test_defaults_are_those_of_the_engine():
    for name, default, about in _quire.sampling_parameters():
        assert SamplingParams.__dataclass_fields__[name].default == pytest.approx(default), name
        assert about
