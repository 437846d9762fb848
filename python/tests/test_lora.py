"""LoRA adapters, loaded when a request first names them, and control vectors."""

import asyncio
import os

import pytest
from conftest import GOLDEN, OPTIONS

import quire
from quire import LLM, AsyncLLM, EngineArgs, LLMEngine, SamplingParams
from quire.lora.request import LoRARequest

MODEL, ADAPTERS = str(GOLDEN / "models/llama"), GOLDEN / "adapters"
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPT = [5, 9, 33, 70, 12, 200, 8]
NAMES = ["llama", "llama_rslora", "llama_dora"]
REQUESTS = [LoRARequest(name, number, str(ADAPTERS / name)) for number, name in enumerate(NAMES, 1)]

pytestmark = pytest.mark.skipif("QUIRE_EXECUTOR_PROCESS" in os.environ, reason="adapters are loaded at the start only")


def tokens(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def load(**options):
    return LLM(MODEL, enable_lora=True, **{"max_lora_rank": 4, **OPTIONS, **options})


@pytest.fixture(scope="module")
def alone():
    """The answers of the model, and with each adapter."""
    with load() as llm:
        answers = [tokens(llm.generate(PROMPT, GREEDY, use_tqdm=False, lora_request=one))[0] for one in (None, *REQUESTS)]
    assert len({tuple(answer) for answer in answers}) == 4
    return answers


@pytest.mark.parametrize("room", [{"max_loras": 3}, {"max_loras": 1, "max_cpu_loras": 2}, {"max_loras": 1}])
def test_each_prompt_of_a_batch_may_have_its_adapter(alone, room):
    adapters = [None, *REQUESTS] * 5
    with load(**room) as llm:
        for _ in range(2):
            outputs = llm.generate([PROMPT] * len(adapters), GREEDY, use_tqdm=False, lora_request=adapters)
            assert tokens(outputs) == alone * 5
            assert [output.lora_request for output in outputs] == adapters
            assert [int(output.request_id) for output in outputs] == sorted(int(output.request_id) for output in outputs)
        assert tokens(llm.generate([PROMPT] * 2, GREEDY, use_tqdm=False, lora_request=REQUESTS[1])) == [alone[2]] * 2


def test_adapters_change_embeddings():
    with load(max_loras=3) as llm:
        vectors = [llm.embed(PROMPT, use_tqdm=False, lora_request=one)[0].outputs.embedding for one in (None, *REQUESTS)]
    assert len({vector.tobytes() for vector in vectors}) == 4


def test_requests_for_adapters_are_checked(alone, tmp_path):
    with LLM(MODEL, **OPTIONS) as llm, pytest.raises(quire.InvalidError, match="enable_lora=True"):
        llm.generate(PROMPT, GREEDY, use_tqdm=False, lora_request=REQUESTS[0])
    with load(max_loras=2) as llm:
        for wrong, error, message in (
            ("llama", TypeError, "LoRARequest, not str"),
            ([REQUESTS[0]] * 2, quire.InvalidError, "1 prompts and 2 lora_requests"),
            (LoRARequest("x", 9, "/no/such/folder"), quire.NotFoundError, "/no/such/folder"),
            (LoRARequest("x", 9, str(ADAPTERS / "glm")), quire.InvalidError, "another model"),
        ):
            with pytest.raises(error, match=message):
                llm.generate(PROMPT, GREEDY, use_tqdm=False, lora_request=wrong)
        with pytest.raises(TypeError, match="LoRARequest, not int"):
            llm.embed(PROMPT, use_tqdm=False, lora_request=3)
        llm.generate(PROMPT, GREEDY, use_tqdm=False, lora_request=REQUESTS[0])
        other = LoRARequest("other", 1, REQUESTS[1].lora_path)
        with pytest.raises(quire.InvalidError, match="lora_int_id 1 is the adapter"):
            llm.generate(PROMPT, GREEDY, use_tqdm=False, lora_request=other)
        other.load_inplace = True
        assert tokens(llm.generate(PROMPT, GREEDY, use_tqdm=False, lora_request=other)) == [alone[2]]
        # The engine goes on after all of this.
        assert tokens(llm.generate([PROMPT] * 2, GREEDY, use_tqdm=False, lora_request=[None, REQUESTS[2]])) == [alone[0], alone[3]]
    with load(max_lora_rank=3) as llm, pytest.raises(quire.InvalidError, match="rank 4"):
        llm.generate(PROMPT, GREEDY, use_tqdm=False, lora_request=REQUESTS[0])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_loras": 0}, ValueError, "max_loras is 0"),
        ({"max_loras": 1.5}, TypeError, "max_loras must be an int"),
        ({"max_cpu_loras": -1}, ValueError, "max_cpu_loras is -1"),
        ({"max_lora_rank": 0}, ValueError, "max-lora-rank"),
        ({"max_lora_rank": "x"}, TypeError, "max_adapter_rank must be an int"),
        ({"max_loras": 10**9}, ValueError, "max-loras"),
        ({"max_loras": 4096, "max_lora_rank": 4096}, quire.ResourceError, "adapters"),
        ({"lora_dtype": "float16"}, NotImplementedError, "lora_dtype"),
        ({"lora_target_modules": ["q_proj"]}, NotImplementedError, "lora_target_modules"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        load(**options).close()


@pytest.mark.parametrize(
    ("arguments", "error"), [(("a", 0, "/x"), ValueError), (("a", True, "/x"), TypeError), ((3, 1, "/x"), TypeError), (("a", 1), ValueError)]
)
def test_a_request_names_an_adapter(arguments, error):
    with pytest.raises(error):
        LoRARequest(*arguments)


def test_tasks_share_adapters(alone):
    async def run():
        engine = AsyncLLM(MODEL, enable_lora=True, max_loras=2, max_lora_rank=4, **OPTIONS)

        async def answer(number, adapter):
            async for output in engine.generate(PROMPT, GREEDY, str(number), lora_request=adapter):
                last = output
            assert last.lora_request is adapter
            return last.outputs[0].token_ids

        adapters = [None, *REQUESTS[:2]] * 3
        assert await asyncio.gather(*(answer(i, one) for i, one in enumerate(adapters))) == alone[:3] * 3
        assert await engine.list_loras() == {1, 2}
        assert await engine.add_lora(REQUESTS[0]) is False
        assert await engine.add_lora(REQUESTS[2]) is True
        assert await engine.list_loras() == {1, 3}
        assert await engine.remove_lora(1) is True and await engine.remove_lora(1) is False
        assert await answer(99, REQUESTS[2]) == alone[3]
        with pytest.raises(quire.NotFoundError):
            await answer(100, LoRARequest("x", 9, "/no/such/folder"))
        # Those in use are not unloaded for another.
        endless = SamplingParams(max_tokens=None, ignore_eos=True)
        running = [engine.generate(PROMPT, endless, f"long {i}", lora_request=one) for i, one in enumerate(REQUESTS[:2])]
        for one in running:
            await anext(one)
        with pytest.raises(quire.ResourceError, match="all 2 are in use"):
            await answer(101, REQUESTS[2])
        for one in running:
            await one.aclose()
        assert await answer(102, REQUESTS[2]) == alone[3]
        engine.shutdown()

    asyncio.run(run())


def test_an_engine_takes_requests_one_by_one(alone):
    engine = LLMEngine.from_engine_args(EngineArgs(MODEL, enable_lora=True, max_loras=1, max_lora_rank=4, engine_options=OPTIONS))
    answers = {}
    for i, adapter in enumerate([None, *REQUESTS, None, *REQUESTS]):
        assert engine.add_request(str(i), PROMPT, GREEDY, lora_request=adapter) == str(i)
    assert engine.get_num_unfinished_requests() == 8
    with pytest.raises(quire.InvalidError, match="in use"):
        engine.add_request("3", PROMPT, GREEDY)
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                answers[output.request_id] = output.outputs[0].token_ids
    assert [answers[str(i)] for i in range(8)] == alone * 2
    assert engine.step() == []

    endless = SamplingParams(max_tokens=None, ignore_eos=True)
    engine.add_request("a", PROMPT, endless, lora_request=REQUESTS[0])
    engine.add_request("b", PROMPT, GREEDY, lora_request=REQUESTS[1])
    engine.abort_request(["a", "unknown"])
    while engine.has_unfinished_requests():
        answers |= {output.request_id: output.outputs[0].token_ids for output in engine.step()}
    assert answers["b"] == alone[2] and "a" not in answers
    with pytest.raises(quire.NotFoundError):
        engine.add_request("c", PROMPT, GREEDY, lora_request=LoRARequest("x", 9, "/no/such/folder"))
    assert not engine.has_unfinished_requests()
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.add_request("d", PROMPT, GREEDY)


def test_control_vectors_change_answers(alone):
    first, second = (str(GOLDEN / f"control-vectors/{name}.gguf") for name in ("first", "second"))

    def logits(*vectors, **options):
        with LLM(MODEL, control_vectors=list(vectors), **options, **OPTIONS) as llm:
            return llm.logits(PROMPT, use_tqdm=False)[0].tobytes()

    plain = logits()
    assert logits((first, 0.0)) == plain
    different = {plain, logits(first), logits((first, -1.0)), logits(first, (second, 0.5)), logits(first, control_first_layer=2)}
    assert len(different) == 5
    for wrong, error in (((first, "1"), TypeError), (3, TypeError), ("/no/such/file.gguf", quire.QuireError), (str(ADAPTERS / "qwen2.gguf"), ValueError)):
        with pytest.raises(error):
            logits(wrong)
