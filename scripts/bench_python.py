#!/usr/bin/env python3
"""Measures what Python costs: LLM.generate of many prompts, and the share of its time that the engine computes.

A program in C++ has at most the rate that the engine has in its steps, so the share bounds what such a program could gain.
Runs with the interpreter of ./dev python.
"""

import argparse
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--logprobs", type=int, help="alternatives for each token of the answers")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    import quire  # not for --help

    params = quire.SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True, logprobs=arguments.logprobs)
    with quire.LLM(arguments.model, threads=arguments.threads, enable_prefix_caching=False, max_model_len=arguments.prompt_tokens + arguments.tokens) as llm:
        vocabulary = llm.model_info["vocab_size"]
        prompts = [[(7919 * i + 104729 * j) % vocabulary for j in range(arguments.prompt_tokens)] for i in range(arguments.prompts)]
        llm.generate(prompts[:4], params, use_tqdm=False)
        for _ in range(arguments.rounds):
            before, started = llm.stats(), time.perf_counter()
            outputs = llm.generate(prompts, params, use_tqdm=False)
            seconds, after = time.perf_counter() - started, llm.stats()
            computing = sum(after[name] - before[name] for name in ("decode_seconds", "prompt_seconds"))
            tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
            print(f"{tokens / seconds:8.1f} tokens/s in {seconds:.2f} s, of which the engine computed {computing / seconds:.1%}")


if __name__ == "__main__":
    main()
