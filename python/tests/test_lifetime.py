"""Closing, signals, forks, threads, and the end of the interpreter."""

import os
import signal
import subprocess
import textwrap
import threading
import time

import pytest
from conftest import LONG, OPTIONS, PYTHON, TINY

from quire import LLM, SamplingParams

ENDLESS = SamplingParams(max_tokens=None, ignore_eos=True)


@pytest.fixture
def long():
    """Answers that no test waits for."""
    with LLM(LONG, max_model_len=50_000, **OPTIONS) as llm:
        yield llm


def run_script(text, *flags, timeout=60, **options):
    prelude = f"import quire\nfrom quire import LLM, SamplingParams\nOPTIONS = {OPTIONS!r}\nTINY, LONG = {TINY!r}, {LONG!r}\nENDLESS = SamplingParams(max_tokens=None, ignore_eos=True)\n"
    return subprocess.run([*PYTHON, *flags, "-c", prelude + textwrap.dedent(text)], capture_output=True, text=True, timeout=timeout, **options)


def test_a_closed_engine_says_so():
    llm = LLM(TINY, **OPTIONS)
    tokenizer = llm.get_tokenizer()
    llm.close()
    llm.close()
    for call in (lambda: llm.generate("x"), lambda: llm.embed("x"), lambda: llm.stats(), lambda: tokenizer.encode("x"), lambda: llm.model_info):
        with pytest.raises(RuntimeError, match="the engine is closed"):
            call()


def test_closing_ends_what_other_threads_wait_for():
    llm = LLM(LONG, max_model_len=50_000, **OPTIONS)
    ended = []

    def work():
        with pytest.raises(RuntimeError, match="closed"):
            llm.generate([[1, 2]] * 3, ENDLESS, use_tqdm=False)
        ended.append(True)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while llm.stats()["running"] < 6 and any(thread.is_alive() for thread in threads):
        time.sleep(0.01)
    llm.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert ended == [True, True]


def test_two_engines_answer_alike():
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    with LLM(TINY, **OPTIONS) as one, LLM(TINY, **OPTIONS) as other:
        assert one.generate("x", params, use_tqdm=False)[0].outputs == other.generate("x", params, use_tqdm=False)[0].outputs


def test_threads_share_an_engine(tiny):
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    expected = [tiny.generate(f"text {i}", params, use_tqdm=False)[0].outputs for i in range(8)]
    got = [None] * 8

    def work(i):
        got[i] = tiny.generate(f"text {i}", params, use_tqdm=False)[0].outputs

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


def wait_until_idle(llm):
    deadline = time.monotonic() + 10
    while llm.stats()["running"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert llm.stats()["running"] == 0


def test_ctrl_c_ends_a_batch_and_the_engine_goes_on(long):
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        long.generate([[1, 2]] * 4, ENDLESS, use_tqdm=False)
    timer.join()
    wait_until_idle(long)
    assert long.generate([1], SamplingParams(max_tokens=1), use_tqdm=False)


def test_an_exception_of_the_progress_bar_cancels_the_batch(long):
    class Bar:
        def __init__(self, **_):
            pass

        def update(self, _):
            raise ZeroDivisionError

        def close(self):
            pass

    with pytest.raises(ZeroDivisionError):
        long.generate([[1]] * 4, [SamplingParams(max_tokens=1), *[ENDLESS] * 3], use_tqdm=Bar)
    wait_until_idle(long)


def test_a_forked_child_is_told():
    done = run_script(
        """
        import gc, os
        llm = LLM(TINY, **OPTIONS)
        llm.generate("x", use_tqdm=False)
        child = os.fork()
        if child == 0:
            try:
                llm.generate("x", use_tqdm=False)
            except RuntimeError as error:
                print(error, flush=True)
            del llm
            gc.collect()
            raise SystemExit(7)
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), len(llm.generate("x", use_tqdm=False)))
        """,
        *("-W", "ignore::DeprecationWarning"),  # what Python 3.12 says of fork() itself
    )
    assert "a forked child cannot use it" in done.stdout and done.stdout.endswith("7 1\n"), done
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize(
    "script",
    [
        "llm = LLM(TINY, **OPTIONS)",
        "llm = LLM(TINY, **OPTIONS); llm.itself = llm",
        """
        import contextlib, threading, time
        llm = LLM(LONG, max_model_len=50_000, **OPTIONS)
        def work():
            with contextlib.suppress(RuntimeError):
                llm.generate([1], ENDLESS, use_tqdm=False)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        """,
        "llm = quire.AsyncLLM(TINY, **OPTIONS)",
        "llm = LLM(TINY, **OPTIONS); queue = quire._quire.AnswerQueue(llm._engine); del llm",
        "[output] = LLM(TINY, **OPTIONS).embed('x', use_tqdm=False); vector = output.outputs.embedding",
    ],
)
def test_the_interpreter_ends_cleanly(script):
    done = run_script(script, "-X", "dev")
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_an_unhandled_exception_ends_the_program():
    done = run_script("llm = LLM(TINY, **OPTIONS)\nllm.generate('x', SamplingParams(max_tokens=3), use_tqdm=False)\n1 / 0")
    assert done.returncode == 1 and done.stderr.strip().endswith("ZeroDivisionError: division by zero")


def test_the_memory_of_engines_is_given_back():
    done = run_script(
        """
        import resource
        def peak():
            LLM(TINY, **OPTIONS).close()
            return int(open('/proc/self/statm').read().split()[1])
        peak(), peak()
        first = peak()
        last = [peak() for _ in range(5)][-1]
        print((last - first) * resource.getpagesize() >> 20)
        """
    )
    assert done.returncode == 0 and int(done.stdout) < 64, done
