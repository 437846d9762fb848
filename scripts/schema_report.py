#!/usr/bin/env python3
"""Judges `quire grammar` on files of JSON schemas with valid and invalid instances, and prints the tables of docs/structured-output.md.

    scripts/schema_report.py ../shared/data/json-schema/maskbench.jsonl.gz [-m MODEL | --tokenizer FILE] [--every N] [--wrong]

A line of such a file: {"name" or "description": …, "schema": …, "tests": [{"valid": true, "data": …}]}. Every valid instance, written in the order of its
keys, must be accepted, and no invalid one; or the schema is refused."""

import argparse
import collections
import gzip
import json
import re
import subprocess
import sys


def judge(quire, row, options):
    """(outcome, keyword or wrong instances, stats)"""
    lines = [json.dumps(row["schema"])]
    lines += [json.dumps(test["data"], ensure_ascii=bool(i % 2)) for i, test in enumerate(row["tests"])]
    command = [quire, "grammar", "--schema", "-", "--check-jsonl", "-", "--stats", *options]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode == 1:
        message = done.stderr.strip().removeprefix("quire: ")
        found = re.match(r"schema: (\S+) at ", message)
        return "refused", found.group(1) if found else message[:60], None
    if done.returncode != 0:
        return "crashed", done.stderr[-200:], None
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [test for test, answer in zip(row["tests"], answers) if answer["accepted"] != test["valid"]]
    return ("wrong" if wrong else "right"), wrong, answers[-1]


def quantile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--quire", default="build/release/quire")
    parser.add_argument("-m", "--model")
    parser.add_argument("--tokenizer")
    parser.add_argument("--every", type=int, default=1, help="only each Nth schema")
    parser.add_argument("--wrong", action="store_true", help="show the instances judged wrongly")
    args = parser.parse_args()
    options = ["-m", args.model] if args.model else ["--tokenizer", args.tokenizer] if args.tokenizer else []
    failed = False
    for file in args.files:
        with gzip.open(file, "rt") as lines:
            rows = [json.loads(line) for line in lines][:: args.every]
        outcomes, refusals, compile_us, slowest = collections.Counter(), collections.Counter(), [], 0
        up_to, masks = collections.Counter(), 0
        for row in rows:
            outcome, detail, stats = judge(args.quire, row, options)
            outcomes[outcome] += 1
            failed = failed or outcome in ("wrong", "crashed")
            if outcome == "refused":
                refusals[detail] += 1
            elif outcome == "crashed" or (outcome == "wrong" and args.wrong):
                print(outcome, row.get("name", row.get("description")), json.dumps(detail)[:2000])
            if stats:
                compile_us.append(stats["compile_us"])
                masks += stats["mask_us"]["count"]
                slowest = max(slowest, stats["mask_us"]["max"])
                up_to.update(stats["mask_us"]["up_to"])
        accepted = outcomes["right"] + outcomes["wrong"]
        print(f"\n{file}: {len(rows)} schemas, {sum(len(row['tests']) for row in rows)} instances\n")
        print("| accepted | refused | wrong | compile p50 | p95 | max |\n|---|---|---|---|---|---|")
        times = " | ".join(f"{quantile(compile_us, share) / 1000:.2f} ms" for share in (0.5, 0.95, 1))
        print(f"| {accepted} ({100 * accepted / len(rows):.1f} %) | {outcomes['refused']} | {outcomes['wrong']} | {times} |\n")
        print("| refused for | schemas |\n|---|---|")
        for keyword, count in refusals.most_common():
            print(f"| {keyword} | {count} |")
        shares = ", ".join(f"{bound} µs: {100 * up_to[bound] / masks:.2f} %" for bound in up_to) if masks else "none"
        print(f"\n{masks} masks, at most {slowest:.0f} µs; share that took up to {shares}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
