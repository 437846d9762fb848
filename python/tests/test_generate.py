"""LLM.generate and LLM.chat."""

import json
import time

import numpy as np
import pytest
from conftest import SMOLLM2, needs_model

import quire
from quire import LLM, SamplingParams, StructuredOutputsParams

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def answers(llm, prompts, params):
    return [[one.token_ids for one in output.outputs] for output in llm.generate(prompts, params, use_tqdm=False)]


def test_all_forms_of_a_prompt_give_the_same_answer(tiny):
    text = "some text"
    ids = tiny.get_tokenizer().encode(text)
    forms = [text, ids, {"prompt": text}, {"prompt_token_ids": ids}, np.array(ids), np.array(ids, np.int32), np.array([0, *ids], np.uint64)[1:]]
    results = [answers(tiny, form, GREEDY) for form in forms] + [answers(tiny, [form], GREEDY) for form in forms]
    assert len(results[0][0][0]) == 12
    assert all(result == results[0] for result in results)


def test_outputs_have_the_attributes_of_vllm(tiny):
    [output] = tiny.generate("abc", SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, logprobs=2, prompt_logprobs=1, n=2, seed=7), use_tqdm=False)
    assert output.prompt == "abc" and output.prompt_token_ids == tiny.get_tokenizer().encode("abc")
    assert output.finished and output.request_id.isdigit() and output.lora_request is None
    assert output.num_cached_tokens >= 0 and output.metrics.first_token_latency > 0
    assert output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == len(output.prompt_token_ids)
    for position, token in zip(output.prompt_logprobs[1:], output.prompt_token_ids[1:], strict=True):
        assert position[token].logprob <= 0
    assert [one.index for one in output.outputs] == [0, 1]
    for one in output.outputs:
        assert one.finish_reason == "length" and one.stop_reason is None and one.finished()
        assert one.text == tiny.get_tokenizer().decode(one.token_ids, skip_special_tokens=True)
        assert len(one.logprobs) == 5
        best = [position[token] for position, token in zip(one.logprobs, one.token_ids, strict=True)]
        assert all(one.rank == 1 for one in best), "greedy"
        assert one.cumulative_logprob == pytest.approx(sum(one.logprob for one in best))
        assert all(len(position) == 2 for position in one.logprobs)


def test_each_prompt_may_have_its_own_parameters(tiny):
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (1, 2, 3)]
    assert [len(one[0]) for one in answers(tiny, ["a", "b", "c"], params)] == [1, 2, 3]
    with pytest.raises(quire.InvalidError, match="3 prompts and 2"):
        tiny.generate(["a", "b", "c"], params[:2])


def test_answers_come_in_the_order_of_prompts_and_do_not_depend_on_their_batch(tiny):
    prompts = [f"prompt {i}" for i in range(40)]
    together = answers(tiny, prompts, GREEDY)
    assert together == [answers(tiny, one, GREEDY)[0] for one in prompts]
    assert len({tuple(one[0]) for one in together}) > 1


def test_the_seed_of_the_engine_decides_the_answers_without_one(load):
    sampled = SamplingParams(temperature=50, max_tokens=8, ignore_eos=True)  # random weights are very sure
    runs = [answers(load("qwen3_embedding", seed=seed), ["x", "x"], sampled) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1], "each request draws its own"


def test_stop_strings_and_tokens_end_answers(tiny):
    [whole] = tiny.generate("some text", GREEDY, use_tqdm=False)
    ids, text = whole.outputs[0].token_ids, whole.outputs[0].text
    [by_token] = tiny.generate("some text", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=[ids[3]]), use_tqdm=False)
    assert by_token.outputs[0].stop_reason == ids[3] and by_token.outputs[0].finish_reason == "stop"
    assert by_token.outputs[0].token_ids == ids[: ids.index(ids[3]) + 1]
    stop = text[4:6]
    [by_text] = tiny.generate("some text", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop=stop), use_tqdm=False)
    assert by_text.outputs[0].stop_reason == stop and by_text.outputs[0].text == text[: text.index(stop)]
    [with_stop] = tiny.generate(
        "some text", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop=[stop], include_stop_str_in_output=True), use_tqdm=False
    )
    assert with_stop.outputs[0].text == text[: text.index(stop) + len(stop)]


def test_detokenize_false_and_truncated_prompts(tiny):
    [output] = tiny.generate("abcdefgh", SamplingParams(max_tokens=3, detokenize=False, truncate_prompt_tokens=4), use_tqdm=False)
    assert output.outputs[0].text == "" and output.outputs[0].token_ids
    assert output.prompt_token_ids == tiny.get_tokenizer().encode("abcdefgh")[-4:]


def test_structured_outputs_are_followed(tiny):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["age"]}
    for spec, check in (
        ({"json": schema}, lambda text: set(json.loads(text)) == {"age"}),
        ({"json": json.dumps(schema)}, lambda text: 0 <= json.loads(text)["age"] <= 150),
        ({"regex": "[0-9]{3}-[ab]{1,3}c"}, lambda text: text[3] == "-"),
        ({"choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
        ({"grammar": 'root ::= "x" [0-9]'}, lambda text: text[0] == "x" and text[1].isdigit()),
    ):
        params = SamplingParams(max_tokens=60, seed=1, structured_outputs=StructuredOutputsParams(**spec))
        [output] = tiny.generate("some text", params, use_tqdm=False)
        assert check(output.outputs[0].text), output.outputs[0].text
        assert output.outputs[0].finish_reason == "stop"


def test_a_failed_request_raises_and_cancels_the_others(tiny):
    bad = SamplingParams(structured_outputs=StructuredOutputsParams(json={"type": "string", "format": "iri"}))
    endless = SamplingParams(max_tokens=None, ignore_eos=True)
    with pytest.raises(quire.QuireError, match=r"structured_outputs\.json.*iri"):
        tiny.generate(["a", "b"], [endless, bad], use_tqdm=False)
    dead = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes"]), allowed_token_ids=[1], max_tokens=5)
    with pytest.raises(quire.InvalidError):
        tiny.generate(["a", "b"], [endless, dead], use_tqdm=False)
    assert answers(tiny, "still alive", GREEDY)


def test_a_refused_request_cancels_those_before_it(load):
    llm = load("../models-gguf/hunyuan", max_model_len=50_000)
    endless = SamplingParams(max_tokens=None, ignore_eos=True)
    with pytest.raises(quire.InvalidError) as caught:
        llm.generate([[1], [10**6]], endless, use_tqdm=False)
    deadline = time.monotonic() + 10
    while (llm.stats()["running"] or not llm.stats()["finished_requests"]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert caught.tb is not None and llm.stats()["running"] == 0, "the traceback keeps the queue"


def test_progress_is_reported(tiny, capsys):
    tiny.generate(["a"] * 3, GREEDY)
    assert "Processed prompts" in capsys.readouterr().err
    seen = []

    class Bar:
        def __init__(self, **options):
            seen.append(options["total"])

        def update(self, n):
            seen.append(n)

        def close(self):
            seen.append("closed")

    tiny.generate(["a"] * 3, GREEDY, use_tqdm=Bar)
    assert seen == [3, 1, 1, 1, "closed"]


def test_an_empty_list_of_prompts_has_no_answers(tiny):
    assert tiny.generate([], GREEDY) == []


TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def test_chats_are_the_prompts_of_the_template(smollm2):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    [output] = smollm2.chat(messages, SamplingParams(temperature=0, max_tokens=16), use_tqdm=False)
    assert "Paris" in output.outputs[0].text
    assert output.prompt.endswith("<|im_start|>assistant\n") and "What is the capital" in output.prompt
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is the capital of France?"}]}]
    both = smollm2.chat([messages, parts], SamplingParams(temperature=0, max_tokens=16), use_tqdm=False)
    assert [one.outputs[0].text for one in both] == [output.outputs[0].text] * 2
    started = [*messages, {"role": "assistant", "content": "The capital of France is"}]
    [continued] = smollm2.chat(started, SamplingParams(temperature=0, max_tokens=4), use_tqdm=False, add_generation_prompt=False, continue_final_message=True)
    assert continued.prompt.endswith("The capital of France is") and "Paris" in continued.outputs[0].text


def test_messages_spell_no_special_tokens(smollm2):
    tokenizer = smollm2.get_tokenizer()
    end = tokenizer.encode("<|im_end|>", add_special_tokens=False)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "<|im_end|>"}])
    assert len(end) == 1 and ids.count(end[0]) == tokenizer.apply_chat_template([{"role": "user", "content": "x"}]).count(end[0])


def test_tools_that_the_template_does_not_show_are_refused(smollm2):
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    with pytest.raises(quire.QuireError, match="tool"):
        smollm2.chat(messages, tools=[TOOL], use_tqdm=False)


@needs_model
def test_tools_are_in_the_prompt_where_the_template_has_a_place():
    template = "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}{{ mood }}"
    llm = LLM(str(SMOLLM2), chat_template=template, max_model_len=1024)
    messages = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    [output] = llm.chat(messages, SamplingParams(max_tokens=1), tools=[TOOL], chat_template_kwargs={"mood": "grim"}, use_tqdm=False)
    assert "get_weather" in output.prompt and '"city": "Paris"' in output.prompt and output.prompt.endswith("grim")
    llm.close()


def test_a_model_without_a_template_needs_one(tiny):
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(quire.UnsupportedError, match="no chat template"):
        tiny.chat(messages)
    template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    [output] = tiny.chat(messages, GREEDY, chat_template=template, use_tqdm=False)
    assert output.prompt == "<x>" == tiny.get_tokenizer().apply_chat_template(messages, chat_template=template, tokenize=False)
    assert [one.token_ids for one in output.outputs] == answers(tiny, tiny.get_tokenizer().encode("<x>", False), GREEDY)[0]
    with pytest.raises(quire.InvalidError, match="chat_template"):
        tiny.chat(messages, chat_template="{% if %}")
    with pytest.raises(TypeError, match="chat_template"):
        tiny.chat(messages, chat_template=3)


def test_default_parameters_are_those_of_the_model(tiny):
    assert tiny.get_default_sampling_params() == SamplingParams(**tiny.model_info["sampling_defaults"])
    assert tiny.generate("x", use_tqdm=False)[0].outputs[0].token_ids


def test_options_have_an_effect(load):
    llm = load(
        "qwen3_embedding",
        max_model_len=32,
        kv_cache_dtype="fp8",
        dtype="float32",
        max_num_seqs=2,
        speculative_config={"method": "ngram", "num_speculative_tokens": 3},
    )
    info = llm.model_info
    assert (info["max_model_len"], info["kv_cache_dtype"], info["activations"], info["threads"]) == (32, "fp8", "f32", 2)
    plain = load("qwen3_embedding", max_model_len=32, kv_cache_dtype="fp8", dtype="float32", max_num_seqs=2)
    prompt = "abc abc abc"
    assert answers(llm, prompt, GREEDY) == answers(plain, prompt, GREEDY)
    assert llm.stats()["drafted_tokens"] > 0 and plain.stats()["drafted_tokens"] == 0


def test_the_memory_share_limits_the_engine(load):
    from quire import _quire

    llm = LLM(load("bert").model_info["name"], gpu_memory_utilization=0.5)
    assert llm.model_info["memory_bytes"] <= 0.55 * _quire.available_memory() + (1 << 30)
    llm.close()
