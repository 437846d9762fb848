"""AsyncLLM: streams, aborts, slow readers, and how it ends."""

import asyncio
import threading
import time

import numpy as np
import pytest
from conftest import ENCODERS, LONG, OPTIONS, TINY

import quire
from quire import AsyncEngineArgs, AsyncLLM, PoolingParams, RequestOutputKind, SamplingParams

GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
ENDLESS = SamplingParams(max_tokens=None, ignore_eos=True, output_kind=RequestOutputKind.DELTA)


@pytest.fixture
def engine():
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=TINY, engine_options=OPTIONS))
    yield llm
    llm.shutdown()


@pytest.fixture
def long():
    """Answers that a test need not see the end of."""
    llm = AsyncLLM(LONG, max_model_len=50_000, **OPTIONS)
    yield llm
    llm.shutdown()


async def collect(llm, prompt, params, request_id="1", pause=0.0):
    outputs = []
    async for output in llm.generate(prompt, params, request_id):
        outputs.append(output)
        await asyncio.sleep(pause)
    return outputs


async def idle(llm):
    """Waits until the engine has nothing to do."""
    deadline = time.monotonic() + 20
    while llm.stats()["running"] + llm.stats()["waiting"] and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert llm.stats()["running"] + llm.stats()["waiting"] == 0


def test_each_kind_of_output_gives_the_same_answer(engine, tiny):
    [expected] = tiny.generate("some text", SamplingParams(**GREEDY, logprobs=1), use_tqdm=False)
    answer = expected.outputs[0]
    for pause in (0.0, 0.02):
        kinds = {
            kind: asyncio.run(collect(engine, "some text", SamplingParams(**GREEDY, logprobs=1, output_kind=kind), pause=pause)) for kind in RequestOutputKind
        }
        cumulative, delta, final = (kinds[kind] for kind in RequestOutputKind)
        assert len(final) == 1 and final[0].outputs == [answer] == cumulative[-1].outputs
        assert "".join(one.outputs[0].text for one in delta) == answer.text
        assert sum((one.outputs[0].token_ids for one in delta), []) == answer.token_ids
        assert sum((one.outputs[0].logprobs for one in delta), []) == answer.logprobs
        assert {one[-1].metrics.num_generation_tokens for one in kinds.values()} == {24}
        assert delta[-1].outputs[0].cumulative_logprob == pytest.approx(answer.cumulative_logprob)
        assert [one.finished for one in delta[:-1]] == [False] * (len(delta) - 1) and delta[-1].finished
        lengths = [len(one.outputs[0].token_ids) for one in cumulative]
        assert lengths == sorted(lengths) and len(set(lengths)) == len(lengths)
    assert engine.stats()["running"] == 0


def test_only_the_final_output_is_given_if_asked_for(engine):
    async def run(i):
        params = SamplingParams(max_tokens=140, output_kind=RequestOutputKind.FINAL_ONLY, structured_outputs={"regex": "[ab]{130}"})
        stream = engine.generate("x", params, str(i))
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)  # begins to submit, in a thread
        time.sleep(0.002 * i)  # the engine has pieces before the task goes on
        return [await first] + [output async for output in stream]

    for i in range(20):
        [output] = asyncio.run(run(i))
        assert output.finished and len(output.outputs[0].text) == 130


def test_many_streams_run_together(engine, tiny):
    async def run():
        tasks = [collect(engine, f"text {i}", SamplingParams(**GREEDY, n=1 + i % 2), str(i), pause=0.001 * (i % 3)) for i in range(30)]
        return await asyncio.gather(*tasks)

    for i, outputs in enumerate(asyncio.run(run())):
        [expected] = tiny.generate(f"text {i}", SamplingParams(**GREEDY, n=1 + i % 2), use_tqdm=False)
        assert outputs[-1].outputs == expected.outputs and outputs[-1].request_id == str(i)


def test_one_thread_serves_all_requests(engine):
    async def run():
        before = threading.active_count()
        tasks = [asyncio.create_task(collect(engine, "x", SamplingParams(**GREEDY), str(i))) for i in range(20)]
        await asyncio.sleep(0.05)
        count = threading.active_count() - before
        await asyncio.gather(*tasks)
        return count

    assert asyncio.run(run()) == 0


def test_aborted_requests_end(long):
    async def run():
        reasons = []
        async for output in long.generate([1, 2], ENDLESS, "a"):
            if not output.finished:
                await long.abort(["a", "unknown"])
            reasons += [one.finish_reason for one in output.outputs]
        await long.abort("a")
        return reasons

    assert asyncio.run(run())[-1] == "abort"


def test_leaving_a_loop_or_cancelling_its_task_ends_the_request(long):
    async def run():
        stream = long.generate([1, 2], ENDLESS, "a")
        async for _ in stream:
            break
        await stream.aclose()
        await idle(long)
        task = asyncio.create_task(collect(long, [1, 2], ENDLESS, "a"))
        while not long.stats()["running"]:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await idle(long)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(collect(long, [1, 2], ENDLESS, "a"), 0.2)
        await idle(long)

    asyncio.run(run())


def test_a_reader_that_stops_reading_does_not_stop_others(long):
    async def run():
        stalled = long.generate([1, 2], SamplingParams(temperature=0, max_tokens=400, ignore_eos=True, output_kind=RequestOutputKind.DELTA), "stalled")
        first = await anext(stalled)
        others = await asyncio.gather(*(collect(long, [3], SamplingParams(**GREEDY), str(i)) for i in range(8)))
        await idle(long)
        rest = [output async for output in stalled]
        return first, others, rest

    first, others, rest = asyncio.run(run())
    assert all(outputs[-1].finished for outputs in others)
    assert len(rest) == 1, "joined"
    assert len(first.outputs[0].token_ids) + len(rest[0].outputs[0].token_ids) == 400


def test_constraints_are_compiled_beside_the_loop(engine):
    schema = {"type": "object", "properties": {str(i): {"type": "integer"} for i in range(3)}, "required": ["0"]}
    params = SamplingParams(max_tokens=80, seed=3, structured_outputs={"json": schema})
    assert asyncio.run(collect(engine, "x", params))[-1].outputs[0].text.startswith("{")
    bad = SamplingParams(structured_outputs={"regex": "("})
    with pytest.raises(quire.InvalidError, match="regex"):
        asyncio.run(collect(engine, "x", bad))


def test_embeddings(tiny):
    llm = AsyncLLM(str(ENCODERS / "bert.gguf"), **OPTIONS)

    async def run():
        return [output async for output in llm.encode("some text", PoolingParams(), "1")]

    [output] = asyncio.run(run())
    with quire.LLM(str(ENCODERS / "bert.gguf"), **OPTIONS) as same:
        assert np.array_equal(output.outputs.data, same.embed("some text", use_tqdm=False)[0].outputs.embedding)
    llm.shutdown()


def test_bad_requests_raise_and_are_forgotten(engine):
    async def run():
        for prompt, params, request_id, error in (
            (3, SamplingParams(), "1", TypeError),
            ("x", None, "1", TypeError),
            ("x", SamplingParams(), 1, TypeError),
            ([10**6], SamplingParams(), "1", quire.InvalidError),
            ("word " * 5000, SamplingParams(), "1", quire.InvalidError),
        ):
            with pytest.raises(error):
                await collect(engine, prompt, params, request_id)
        running = engine.generate("x", ENDLESS, "same")
        await anext(running)
        with pytest.raises(quire.InvalidError, match="'same' is in use"):
            await collect(engine, "x", ENDLESS, "same")
        await running.aclose()
        await collect(engine, "x", SamplingParams(), "same")
        assert not engine._tickets and not engine._readers and engine._queue.open() == 0

    asyncio.run(run())


def test_shutdown_wakes_readers():
    llm = AsyncLLM(TINY, **OPTIONS)

    async def run():
        # The engine's thread never waits, so these may have ended by themselves; the rest is told.
        tasks = [asyncio.create_task(collect(llm, "x", SamplingParams(max_tokens=None, ignore_eos=True, n=8), str(i))) for i in range(20)]
        await asyncio.sleep(0.05)
        llm.shutdown()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(run())
    assert any(isinstance(one, RuntimeError) and "shut down" in str(one) for one in results)
    assert all(isinstance(one, (list, RuntimeError)) for one in results)
    llm.shutdown()
    assert not llm.is_running
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(collect(llm, "x", SamplingParams()))


def test_several_event_loops_share_an_engine(engine):
    results = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(asyncio.run(collect(engine, "x", SamplingParams(**GREEDY), str(i)))[-1].outputs)) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(one == results[0] for one in results)


def test_a_loop_that_was_closed_with_open_streams_does_no_harm(engine):
    loop = asyncio.new_event_loop()
    stream = engine.generate("x", ENDLESS, "1")
    loop.run_until_complete(anext(stream))
    loop.close()
    assert asyncio.run(collect(engine, "y", SamplingParams(**GREEDY), "2"))[-1].finished
    asyncio.run(idle(engine))
