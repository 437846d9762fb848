#!/usr/bin/env python3
"""Measures what Python costs: the rate of LLM.generate for many prompts, divided by that of a program in C++ with the same batch.

Both have the model loaded and take turns, so that changes of the machine's speed affect both. The share of the time that
the engine computes in its steps bounds what a program around it can lose. Runs with the interpreter of ./dev python.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--logprobs", type=int, help="alternatives for each token of Python's answers; the program in C++ has none")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bench_generate")
    arguments = parser.parse_args()
    import quire  # not for --help

    params = quire.SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True, logprobs=arguments.logprobs)
    sizes = [str(size) for size in (arguments.prompts, arguments.prompt_tokens, arguments.tokens, arguments.threads)]
    program = subprocess.Popen([arguments.program, arguments.model, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(line):
        if line:
            program.stdin.write(line)
            program.stdin.flush()
        answer = program.stdout.readline().strip()
        if not answer:
            sys.exit(f"{arguments.program} failed (see above)")
        return answer

    ask("")  # it is ready
    options = {"enable_prefix_caching": False, "max_model_len": arguments.prompt_tokens + arguments.tokens, "threads": arguments.threads}
    with quire.LLM(arguments.model, **options) as llm:
        vocabulary = llm.model_info["vocab_size"]
        prompts = [[(7919 * i + 104729 * j) % vocabulary for j in range(arguments.prompt_tokens)] for i in range(arguments.prompts)]
        llm.generate(prompts[:4], params, use_tqdm=False)
        tokens, ratios = arguments.prompts * arguments.tokens, []
        for _ in range(arguments.rounds):
            native = float(ask("\n"))
            before, started = llm.stats(), time.perf_counter()
            outputs = llm.generate(prompts, params, use_tqdm=False)
            seconds, after = time.perf_counter() - started, llm.stats()
            assert sum(len(output.outputs[0].token_ids) for output in outputs) == tokens
            computing = sum(after[name] - before[name] for name in ("decode_seconds", "prompt_seconds"))
            ratios.append(native / seconds)
            print(f"Python {tokens / seconds:8.1f} tokens/s, of which the engine computed {computing / seconds:.1%}; C++ {tokens / native:8.1f} tokens/s; ratio {ratios[-1]:.3f}")
    program.stdin.close()
    program.wait()
    print(f"Python has {statistics.median(ratios):.3f} of the rate of C++ ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
