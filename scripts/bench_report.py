#!/usr/bin/env python3
"""Runs the benchmarks and writes a report with charts: report.md, its SVGs, and the JSON they were made from.

Per model: prefill, decode and batches beside the machine's limits, at the start and deep in a conversation; where the
time of a step goes; with --text what rounding costs. And the linears alone, by type and number of rows.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac", "#7f7f7f"]
INK, QUIET, LIMIT = "#222", "#777", "#dde3ea"


# ---- measuring ---------------------------------------------------------------------------------------------------------


def quire(arguments, command):
    """The JSON that a benchmark prints."""
    print("quire bench " + " ".join(command), file=sys.stderr)
    done = subprocess.run([arguments.quire, "bench", *command, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def measure_model(arguments, model):
    common = ["-m", model, "-r", str(arguments.repetitions), "--profile"]
    quality = ["--quality", "--text", arguments.text, "--quality-tokens", str(arguments.quality_tokens)] if arguments.text else []
    report = quire(arguments, [*common, "-p", arguments.prompt, "-n", arguments.generate, "-b", arguments.batch, *quality])
    if arguments.depth != "0":  # one sequence: many deep ones would take the longest to fill
        first = arguments.prompt.split(",")[0]
        deep = quire(arguments, [*common, "-p", first, "-n", arguments.generate, "-b", "1", "-d", arguments.depth])
        for key in ("results", "profiles"):
            report[key] += deep[key]
    return report


def measure_kernels(arguments):
    types = ["--types", arguments.types] if arguments.types else []
    return quire(arguments, ["kernels", *types, "--shapes", arguments.shapes, "-M", arguments.rows, "-r", str(arguments.repetitions)])


# ---- drawing -----------------------------------------------------------------------------------------------------------


class Svg:
    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def rect(self, x, y, width, height, fill, tip=""):
        tip = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{fill}">{tip}</rect>')

    def text(self, x, y, text, anchor="start", fill=INK, size=12, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" font-weight="{weight}">{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, stroke=QUIET):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="1"/>')

    def write(self, path):
        frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" font-family="sans-serif" role="img">'
        background = f'<title>{escape(self.title)}</title><rect width="100%" height="100%" fill="white"/>'
        path.write_text("\n".join([frame, background, *self.parts, "</svg>", ""]))


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def describe(test):
    parts = [f"{test['test']} {test['tokens']}"]
    if test["batch"] > 1:
        parts.append(f"{test['batch']} sequences")
    if test["depth"] > 0:
        parts.append(f"at depth {test['depth']:,}")
    return ", ".join(parts)


def draw_limits(results, path, title):
    """A bar for each test in the limit's bar. Each has its own scale: prefill and decode are not compared."""
    left, width, row = 230, 420, 26
    svg = Svg(left + width + 190, 44 + row * len(results), title)
    svg.text(8, 20, title, weight="bold", size=14)
    for i, r in enumerate(results):
        y = 34 + i * row
        share = r["of_limit"]
        scale = width / max(1.0, share)
        svg.text(left - 8, y + 15, describe(r), anchor="end")
        svg.rect(left, y + 2, scale, row - 6, LIMIT, f"limit {number(r['limit_tokens_per_second'])} tok/s")
        svg.rect(left, y + 2, share * scale, row - 6, COLOURS[0 if r["test"] == "prefill" else 1], f"{number(r['tokens_per_second'])} tok/s")
        svg.text(left + width + 8, y + 15, f"{number(r['tokens_per_second'])} tok/s, {100 * share:.0f} %")
    svg.write(path)


def draw_profiles(profiles, path, title):
    """The shares of a step's operations, one bar for each test."""
    names = [o["operation"] for o in profiles[0]["operations"]]
    left, width, row = 230, 560, 30
    legend = 44 + row * len(profiles)
    svg = Svg(left + width + 90, legend + 52, title)
    svg.text(8, 20, title, weight="bold", size=14)
    for i, p in enumerate(profiles):
        y = 34 + i * row
        svg.text(left - 8, y + 17, describe(p), anchor="end")
        x = left
        for k, o in enumerate(p["operations"]):
            w = max(0.0, o["share"]) * width
            limit = f", {100 * o['of_limit']:.0f} % of its limit" if "of_limit" in o else ""
            svg.rect(x, y + 2, w, row - 8, COLOURS[k % len(COLOURS)], f"{o['operation']}: {1e3 * o['seconds']:.3f} ms, {100 * o['share']:.1f} %{limit}")
            if w > 30:
                svg.text(x + w / 2, y + 17, f"{100 * o['share']:.0f} %", anchor="middle", fill="white", size=11)
            x += w
        svg.text(left + width + 8, y + 17, f"{1e3 * p['step_seconds']:.2f} ms")
    for k, name in enumerate(names):
        x, y = left + (k % 6) * 108, legend + 10 + k // 6 * 20
        svg.rect(x, y - 10, 11, 11, COLOURS[k % len(COLOURS)])
        svg.text(x + 16, y, name, size=11)
    svg.write(path)


def draw_kernels(results, path, title):
    """For each type a group of bars, one for each number of rows: the share of the limit."""
    types = list(dict.fromkeys(r["type"] for r in results))
    rows = list(dict.fromkeys(r["rows"] for r in results))
    bar, gap, left, height = 11, 18, 46, 200
    group = bar * len(rows) + gap
    top = max(1.0, *(r["of_limit"] for r in results))
    svg = Svg(max(440, left + group * len(types) + 10, left + 50 + 46 * len(rows)), height + 92, title)
    svg.text(8, 20, title, weight="bold", size=14)
    base = 36 + height
    for tick in range(0, 101, 25):
        y = base - height * tick / 100 / top
        svg.line(left, y, left + group * len(types), y, "#e4e4e4")
        svg.text(left - 6, y + 4, f"{tick} %", anchor="end", fill=QUIET, size=11)
    for t, type_name in enumerate(types):
        x = left + t * group + gap / 2
        for r in (r for r in results if r["type"] == type_name):
            k = rows.index(r["rows"])
            h = height * r["of_limit"] / top
            tip = f"{type_name}, {r['rows']} rows: {r['multiply_adds_per_second'] / 1e9:.1f} GMAC/s, {r['bytes_per_second'] / 1e9:.2f} GB/s, {100 * r['of_limit']:.0f} %"
            svg.rect(x + k * bar, base - h, bar - 1, h, COLOURS[k % len(COLOURS)], tip)
        svg.text(x + bar * len(rows) / 2, base + 16, type_name, anchor="middle", size=11)
    svg.line(left, base, left + group * len(types), base)
    svg.text(left, base + 40, "rows:", fill=QUIET, size=11)
    for k, n in enumerate(rows):
        svg.rect(left + 40 + k * 46, base + 30, 11, 11, COLOURS[k % len(COLOURS)])
        svg.text(left + 55 + k * 46, base + 40, str(n), size=11)
    svg.write(path)


# ---- writing -----------------------------------------------------------------------------------------------------------


def table(heads, lines):
    """Markdown; the first column is text, the others are figures."""
    out = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    return out + ["| " + " | ".join(line) + " |" for line in lines] + [""]


def machine_of(machine):
    units = ", ".join(f"{unit} {rate / 1e9:,.0f}" for unit, rate in machine["multiply_adds_per_second"].items())
    return f"{machine['bytes_per_second'] / 1e9:.1f} GB/s, {units} GMAC/s"


def write_model(report, folder, label):
    results, profiles = report["results"], report["profiles"]
    draw_limits(results, folder / f"{label}-limits.svg", f"{report['quantization']}: speed beside the limit")
    draw_profiles(profiles, folder / f"{label}-profile.svg", f"{report['quantization']}: where the time of a step goes")
    out = [f"## {Path(report['model']).name}", "",
           f"{report['quantization']}, {report['parameters'] / 1e6:,.1f} M parameters, {report['weight_bytes'] / 2**20:,.1f} MiB; {report['kernels']} kernels, "
           f"{report['activations']} activations, {report['kv_cache_dtype']} KV cache, {report['threads']} threads", "",
           f"![speed beside the limit]({label}-limits.svg)", ""]
    out += table(["test", "tok/s", "min", "max", "limit", "of it", "probed beside it"],
                 [[describe(r), number(r["tokens_per_second"]), number(r["min"]), number(r["max"]), number(r["limit_tokens_per_second"]), f"{100 * r['of_limit']:.0f} %", machine_of(r["machine"])] for r in results])
    out += [f"![where the time of a step goes]({label}-profile.svg)", ""]
    for p in profiles:
        fixed = f"; fixed cost of a step {1e6 * p['fixed_step_seconds']:.0f} µs" if "fixed_step_seconds" in p else ""
        out += [f"### {describe(p)}: {1e3 * p['step_seconds']:.3f} ms a step{fixed}", ""]
        out += table(["operation", "ms", "share", "GMAC/s", "GB/s", "of its limit"],
                     [[o["operation"], f"{1e3 * o['seconds']:.3f}", f"{100 * o['share']:.1f} %",
                       *([f"{o['multiply_adds_per_second'] / 1e9:.1f}", f"{o['bytes_per_second'] / 1e9:.2f}", f"{100 * o['of_limit']:.0f} %"] if "of_limit" in o else ["", "", ""])] for o in p["operations"]])
    if "quality" in report:
        q = report["quality"]
        out += ["### What rounding costs", ""]
        out += table(["activations, KV cache, beside float32", "tokens", "mean KL", "p99 KL", "same top token", "perplexity", "in float32"],
                     [[f"{q['activations']}, {q['kv_cache_dtype']}", str(q["tokens"]), f"{q['mean_kl']:.6f}", f"{q['p99_kl']:.5f}", f"{100 * q['top1_agreement']:.2f} %", f"{q['perplexity']:.4f}", f"{q['float_perplexity']:.4f}"]])
    return out


def write_kernels(report, folder):
    out = ["## Linears", "", f"{report['kernels']} kernels, {report['threads']} threads; {machine_of(report['machine'])} in this run", ""]
    shapes = list(dict.fromkeys((r["outputs"], r["inputs"]) for r in report["results"]))
    for outputs, inputs in shapes:
        results = [r for r in report["results"] if (r["outputs"], r["inputs"]) == (outputs, inputs)]
        name = f"kernels-{outputs}x{inputs}.svg"
        draw_kernels(results, folder / name, f"{outputs} x {inputs}: share of the limit, by type and rows")
        out += [f"![{outputs} x {inputs}]({name})", ""]
        out += table(["type, activations", "rows", "µs", "GMAC/s", "GB/s", "of the limit"],
                     [[f"{r['type']}, {r['activations']}", str(r["rows"]), f"{1e6 * r['seconds']:.1f}", f"{r['multiply_adds_per_second'] / 1e9:.1f}", f"{r['bytes_per_second'] / 1e9:.2f}", f"{100 * r['of_limit']:.0f} %"] for r in results])
    return out


def main():
    parser = argparse.ArgumentParser(prog="./dev bench report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", help="a model, as in `quire bench -m`; repeat for more (default: smollm2)")
    parser.add_argument("-p", "--prompt", default="512,4096", help="prompt lengths (%(default)s)")
    parser.add_argument("-n", "--generate", default="64", help="tokens to decode (%(default)s)")
    parser.add_argument("-b", "--batch", default="1,8,16,32", help="sequences that decode together (%(default)s)")
    parser.add_argument("-d", "--depth", default="4096", help="also this deep in the cache, for one sequence and the first prompt length; 0: not (%(default)s)")
    parser.add_argument("-r", "--repetitions", type=int, default=5, help="samples of each; the median counts (%(default)s)")
    parser.add_argument("--text", help="measure what rounding costs, on this text file")
    parser.add_argument("--quality-tokens", type=int, default=1024, help="of the text (%(default)s)")
    parser.add_argument("--types", default="", help="weight types of the linears (all)")
    parser.add_argument("--shapes", default="2048x2048,8192x2048", help="outputs x inputs of the linears (%(default)s)")
    parser.add_argument("-M", "--rows", default="1,2,4,8,16,32,128,512", help="rows of the linears (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build/report", help="the report's folder (build/report)")
    parser.add_argument("--quire", default=str(ROOT / "build/release/quire"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.output
    folder.mkdir(parents=True, exist_ok=True)

    body, cpu = [], ""
    for i, model in enumerate(arguments.model or ["smollm2"]):
        report = measure_model(arguments, model)
        cpu = report["cpu"]
        label = f"{i + 1}-" + (re.sub(r"[^A-Za-z0-9]+", "-", Path(model).stem).strip("-").lower() or "model")
        (folder / f"{label}.json").write_text(json.dumps(report, indent=1))
        body += write_model(report, folder, label)
    kernels = measure_kernels(arguments)
    (folder / "kernels.json").write_text(json.dumps(kernels, indent=1))
    body += write_kernels(kernels, folder)
    head = [f"# Quire on {cpu}, {datetime.date.today()}", "",
            f"Medians of {arguments.repetitions} samples, taken in turns; the limits were probed beside each sample (docs/performance.md).", ""]
    (folder / "report.md").write_text("\n".join(head + body))
    print(folder / "report.md")


if __name__ == "__main__":
    main()
