#!/usr/bin/env python3
"""Quantizes a model to many types, and prints what each costs: bits, bytes, divergence, perplexity, speed.

    ./dev bench quant -m MODEL -f TEXT [--calibrate TEXT] [--types Q4_0 Q4_K_M ...] [--methods rtn-int4 ...] [--tasks arc_easy,piqa] [--svg FILE]

Each file is written and compared with MODEL on chunks of TEXT (quire compare), and with --tasks scored by lm_eval. At the end one of each type is
measured (quire bench); then all are deleted. With --calibrate, GGUF types are also written with importance, and with error feedback; methods that
look at inputs are left out without it. Nothing else should run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from math import floor, log10
from pathlib import Path

from bench_report import Svg

ROOT = Path(__file__).resolve().parent.parent
QUIRE = ROOT / "build/release/quire"
TYPES = ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "MXFP4", "NVFP4", "Q3_K_M", "IQ3_S", "Q2_K"]
METHODS = ["fp8", "nf4", "rtn-int4", "gptq", "awq", "smoothquant"]
LOOK_AT_INPUTS = {"gptq", "awq", "smoothquant"}
COLUMNS = ["type", "bits a weight", "MB", "mean KL", "median KL", "99 %", "max", "same top", "perplexity", "prefill tok/s", "decode tok/s", "of the limit"]


def quire(*arguments):
    done = subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"quire {arguments[0]} failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def size_of(path):
    return sum(f.stat().st_size for f in path.rglob("*") if f.suffix == ".safetensors") if path.is_dir() else path.stat().st_size


def accuracy(name, path, o, parameters):
    compared = json.loads(quire("compare", "-m", path, "-b", o.model, "-f", o.file, "--chunks", o.chunks, "--json"))
    size = size_of(path)
    return {
        "type": name,
        "bits a weight": 8 * size / parameters,
        "MB": size / 1e6,
        "mean KL": compared["mean_kl"]["value"],
        "KL error": compared["mean_kl"]["error"],
        "median KL": compared["median_kl"],
        "p99 KL": compared["p99_kl"],
        "max KL": compared["max_kl"],
        "same top": 100 * compared["same_top"]["value"],
        "perplexity": compared["perplexity"]["value"],
    }


def task_scores(path, o):
    """A percentage with its error, or a perplexity, for each task."""
    python = ROOT / "build/python-venv/bin/python"
    if not python.exists():
        sys.exit("--tasks needs the Python package and lm_eval: ./dev clients installs both")
    flags = ["--tasks", o.tasks, *(["--include-path", o.include_path] if o.include_path else []), *(["--limit", str(o.limit)] if o.limit else [])]
    done = subprocess.run([python, ROOT / "scripts/score_tasks.py", *flags, path], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"scoring {path} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])[0]


def text_of_score(score):
    share = 1 if score["metric"].endswith("perplexity") else 100
    error = "" if score["error"] is None else f" ± {share * score['error']:.1f}"
    return f"{share * score['value']:.1f}{error}"


def speed(path):
    prefill, decode = json.loads(quire("bench", "-m", path, "-p", 512, "-n", 64, "-b", 1, "-r", 3, "--json"))["results"]
    return {"prefill tok/s": prefill["tokens_per_second"], "decode tok/s": decode["tokens_per_second"], "of the limit": 100 * decode["of_limit"]}


def variants(o):
    """(name, whether it is a directory, flags of quire quantize)"""
    calibrate = ["--calibrate", o.calibrate, "--calibration-chunks", o.calibration_chunks] if o.calibrate else []
    for kind in o.types:
        yield kind, False, ["--type", kind]
        if calibrate:
            yield f"{kind}, importance", False, ["--type", kind, *calibrate, "--no-feedback"]
            if kind != "Q8_0":
                yield f"{kind}, feedback", False, ["--type", kind, *calibrate]
    for method in o.methods:
        if method not in LOOK_AT_INPUTS or calibrate:
            yield method, True, ["--method", method, *(calibrate if method in LOOK_AT_INPUTS else [])]


def picture(rows):
    """Bytes against divergence, on a scale of decades."""
    width, height, left, top = 760, 440, 60, 56
    svg = Svg(width, height, "bytes against divergence")
    largest = max(r["MB"] for r in rows) * 1.02
    least = min(r["MB"] for r in rows) * 0.96
    low, high = floor(log10(max(1e-5, min(r["mean KL"] for r in rows)))), floor(log10(max(r["mean KL"] for r in rows))) + 1
    x_of = lambda mb: left + (mb - least) / (largest - least) * (width - left - 130)
    y_of = lambda kl: top + (high - log10(max(1e-5, kl))) / (high - low) * (height - top - 50)
    for decade in range(low, high + 1):
        svg.line(left, y_of(10.0**decade), width - 120, y_of(10.0**decade))
        svg.text(left - 6, y_of(10.0**decade) + 4, f"{10.0 ** decade:g}", anchor="end", size=11)
    svg.text(left, top - 12, "mean KL", size=11)
    svg.text(width - 120, height - 12, "MB", anchor="end", size=11)
    for mb in range(int(least / 10) * 10 + 10, int(largest), 10):
        svg.text(x_of(mb), height - 30, str(mb), anchor="middle", size=11)
    colours = {"": "#8c8c8c", "importance": "#3b82c4", "feedback": "#d9822b"}
    for r in rows:
        kind, _, how = r["type"].partition(", ")
        svg.rect(x_of(r["MB"]) - 4, y_of(r["mean KL"]) - 4, 8, 8, colours[how], f"{r['type']}: {r['MB']:.1f} MB, {r['mean KL']:.4f}")
        if how in ("", "feedback"):
            svg.text(x_of(r["MB"]) + 7, y_of(r["mean KL"]) + 4, kind if how == "" else f"{kind} fed back", size=9)
    return svg.html()


def write_and_compare(o, parameters, folder):
    """A row for each variant. A file is kept if it is the first of its type: the others have the same bytes and speed."""
    rows, kept = [], {}
    if o.tasks:
        print(f"{o.model}: {task_scores(o.model, o)}", file=sys.stderr, flush=True)
    for name, is_directory, flags in variants(o):
        kind = name.partition(",")[0]
        path = folder / (f"{kind}-{len(rows)}" + ("" if is_directory else ".gguf"))
        quire("quantize", o.model, path, *flags)
        rows.append(accuracy(name, path, o, parameters) | {"file": kept.setdefault(kind, path)})
        if o.tasks:
            rows[-1]["tasks"] = task_scores(path, o)
        print(f"{name}: {rows[-1]['MB']:.1f} MB, mean KL {rows[-1]['mean KL']:.4f}", file=sys.stderr, flush=True)
        if kept[kind] != path:
            path.unlink()
    return rows


def measure_speeds(rows):
    speeds = {path: speed(path) for path in dict.fromkeys(row["file"] for row in rows)}
    for row in rows:
        row |= speeds[row.pop("file")]


def print_table(rows):
    columns = COLUMNS + list(rows[0].get("tasks", {}))
    print("| " + " | ".join(columns) + " |\n|---|" + "--:|" * (len(columns) - 1))
    for r in rows:
        tasks = "".join(f" {text_of_score(score)} |" for score in r.get("tasks", {}).values())
        print(f"| {r['type']} | {r['bits a weight']:.2f} | {r['MB']:.1f} | {r['mean KL']:.4f} ± {r['KL error']:.4f} | {r['median KL']:.4f} | {r['p99 KL']:.3f} | {r['max KL']:.2f} | {r['same top']:.1f} % | {r['perplexity']:.2f} | {r['prefill tok/s']:.0f} | {r['decode tok/s']:.0f} | {r['of the limit']:.0f} % |{tasks}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="the model, as -m takes it; its own weights are the reference")
    parser.add_argument("-f", "--file", required=True, help="text to compare on")
    parser.add_argument("--chunks", type=int, default=8, help="chunks of 512 tokens to compare (default: 8)")
    parser.add_argument("--calibrate", help="text to calibrate on; it should not be the one to compare on")
    parser.add_argument("--calibration-chunks", type=int, default=32, help="default: 32")
    parser.add_argument("--types", nargs="*", default=TYPES, help="GGUF types and mixes")
    parser.add_argument("--methods", nargs="*", default=METHODS, help="methods that write Hugging Face directories")
    parser.add_argument("--tasks", help="tasks of lm_eval, separated by commas, to score each file on (./dev clients installs lm_eval)")
    parser.add_argument("--include-path", help="a folder of tasks of your own")
    parser.add_argument("--limit", type=int, help="only the first N documents of each task")
    parser.add_argument("--svg", help="file for a picture of bytes against divergence")
    parser.add_argument("--json", help="file for all figures")
    o = parser.parse_args()
    parameters = json.loads(quire("inspect", o.model, "--json"))["parameters"]
    with tempfile.TemporaryDirectory() as folder:
        rows = write_and_compare(o, parameters, Path(folder))
        measure_speeds(rows)
    print_table(rows)
    if o.svg:
        Path(o.svg).write_text(picture(rows) + "\n")
    if o.json:
        Path(o.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
