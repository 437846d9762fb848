#!/usr/bin/env python3
"""Runs the benchmarks and writes a report with charts: one HTML file, plus the measured data as JSON.

For each model: the speed of prefill, decode and batches compared with the machine's limits, at the start and deep in
the context; the time of each operation; with --text also the cost of rounding. For linear layers by themselves: the
speed by weight type and number of rows.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac", "#7f7f7f"]
INK, QUIET, ROOM, LIMIT = "#222", "#777", "#dde3ea", "#c00"


# ---- measuring ---------------------------------------------------------------------------------------------------------


def quire(arguments, command):
    """Runs one benchmark; returns the JSON that it prints."""
    print("quire bench " + " ".join(command), file=sys.stderr)
    done = subprocess.run([arguments.quire, "bench", *command, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def measure_model(arguments, model):
    common = ["-m", model, "-r", str(arguments.repetitions), "--profile"]
    quality = ["--quality", "--text", arguments.text, "--quality-tokens", str(arguments.quality_tokens)] if arguments.text else []
    report = quire(arguments, [*common, "-p", arguments.prompt, "-n", arguments.generate, "-b", arguments.batch, *quality])
    if arguments.depth != "0":  # for one sequence only: filling many caches takes too long
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
        self.text(8, 20, title, weight="bold", size=14)

    def rect(self, x, y, width, height, fill, tip=""):
        tip = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{fill}">{tip}</rect>')

    def text(self, x, y, text, anchor="start", fill=INK, size=12, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" font-weight="{weight}">{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, stroke=QUIET):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="1"/>')

    def limit(self, x1, y1, x2, y2):
        self.parts.append(f'<line class="limit" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{LIMIT}" stroke-width="1.5"/>')

    def html(self):
        frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" font-family="sans-serif" role="img">'
        return "\n".join([frame, f"<title>{escape(self.title)}</title>", *self.parts, "</svg>"])


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def describe(test):
    parts = [f"{test['test']} {test['tokens']}"]
    if test["batch"] > 1:
        parts.append(f"{test['batch']} sequences")
    if test["depth"] > 0:
        parts.append(f"at depth {test['depth']:,}")
    return ", ".join(parts)


def draw_limits(results, title):
    """One bar per test. The limits of all tests are aligned, as prefill and decode rates are not comparable."""
    left, width, row = 230, 420, 26
    bottom = 50 + row * len(results)
    svg = Svg(left + width + 190, bottom + 8, title)
    most = max(1.0, *(r["of_limit"] for r in results))
    at_limit = left + width / most
    svg.text(at_limit, 40, "limit", anchor="middle", fill=LIMIT, size=11)
    for i, r in enumerate(results):
        y = 46 + i * row
        share = r["of_limit"]
        svg.text(left - 8, y + 15, describe(r), anchor="end")
        svg.rect(left, y + 2, width / most, row - 6, ROOM, f"limit: {number(r['limit_tokens_per_second'])} tok/s")
        svg.rect(left, y + 2, share * width / most, row - 6, COLOURS[0 if r["test"] == "prefill" else 1], f"{number(r['tokens_per_second'])} tok/s")
        svg.text(left + width + 8, y + 15, f"{number(r['tokens_per_second'])} tok/s, {100 * share:.0f} %")
    svg.limit(at_limit, 44, at_limit, bottom)
    return svg.html()


def draw_profiles(profiles, title):
    """One bar per test, divided into the operations of a step."""
    names = [o["operation"] for o in profiles[0]["operations"]]
    left, width, row = 230, 560, 30
    legend = 44 + row * len(profiles)
    svg = Svg(left + width + 90, legend + 52, title)
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
    return svg.html()


def draw_kernels(results, title):
    """A group of bars per weight type, one bar per number of rows: the share of the limit."""
    types = list(dict.fromkeys(r["type"] for r in results))
    rows = list(dict.fromkeys(r["rows"] for r in results))
    bar, gap, left, height = 11, 18, 46, 200
    group = bar * len(rows) + gap
    right = left + group * len(types)
    top = max(1.0, *(r["of_limit"] for r in results))
    svg = Svg(max(600, right + 50, left + 50 + 46 * len(rows)), height + 92, title)
    base = 36 + height
    for tick in range(0, 101, 25):
        y = base - height * tick / 100 / top
        svg.line(left, y, right, y, "#e4e4e4")
        svg.text(left - 6, y + 4, f"{tick} %", anchor="end", fill=QUIET, size=11)
    for t, type_name in enumerate(types):
        x = left + t * group + gap / 2
        for r in (r for r in results if r["type"] == type_name):
            k = rows.index(r["rows"])
            h = height * r["of_limit"] / top
            tip = f"{type_name}, {r['rows']} rows: {r['multiply_adds_per_second'] / 1e9:.1f} GMAC/s, {r['bytes_per_second'] / 1e9:.2f} GB/s, {100 * r['of_limit']:.0f} %"
            svg.rect(x + k * bar, base - h, bar - 1, h, COLOURS[k % len(COLOURS)], tip)
        svg.text(x + bar * len(rows) / 2, base + 16, type_name, anchor="middle", size=11)
    svg.line(left, base, right, base)
    svg.limit(left, base - height / top, right, base - height / top)
    svg.text(right + 6, base - height / top + 4, "limit", fill=LIMIT, size=11)
    svg.text(left, base + 40, "rows:", fill=QUIET, size=11)
    for k, n in enumerate(rows):
        svg.rect(left + 40 + k * 46, base + 30, 11, 11, COLOURS[k % len(COLOURS)])
        svg.text(left + 55 + k * 46, base + 40, str(n), size=11)
    return svg.html()


# ---- writing -----------------------------------------------------------------------------------------------------------


STYLE = """
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
"""


def heading(level, text):
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text):
    return f"<p>{escape(text)}</p>"


def table(heads, lines):
    row = lambda tag, cells: "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
    return "\n".join(["<table>", row("th", heads), *(row("td", line) for line in lines), "</table>"])


def machine_of(machine):
    units = ", ".join(f"{rate / 1e9:,.0f} GMAC/s {unit}" for unit, rate in machine["multiply_adds_per_second"].items())
    return f"{machine['bytes_per_second'] / 1e9:.1f} GB/s, {units}"


def write_model(report, name):
    results, profiles = report["results"], report["profiles"]
    label = f"{name}, {report['quantization']}"
    out = [heading(2, label),
           paragraph(f"{report['parameters'] / 1e6:,.1f} M parameters, {report['weight_bytes'] / 2**20:,.1f} MiB of weights; {report['kernels']} kernels, "
                     f"{report['activations']} activations, {report['kv_cache_dtype']} KV cache, {report['threads']} threads"),
           draw_limits(results, f"{label}: speed and limit"),
           table(["test", "tok/s", "min", "max", "limit", "of limit", "machine during the test"],
                 [[describe(r), number(r["tokens_per_second"]), number(r["min"]), number(r["max"]), number(r["limit_tokens_per_second"]), f"{100 * r['of_limit']:.0f} %", machine_of(r["machine"])] for r in results]),
           draw_profiles(profiles, f"{label}: time of a step by operation")]
    for p in profiles:
        fixed = f" (fixed cost: {1e6 * p['fixed_step_seconds']:.0f} µs)" if "fixed_step_seconds" in p else ""
        out += [heading(3, f"{describe(p)}: {1e3 * p['step_seconds']:.3f} ms per step{fixed}"),
                table(["operation", "ms", "share", "GMAC/s", "GB/s", "of limit"],
                      [[o["operation"], f"{1e3 * o['seconds']:.3f}", f"{100 * o['share']:.1f} %",
                        *([f"{o['multiply_adds_per_second'] / 1e9:.1f}", f"{o['bytes_per_second'] / 1e9:.2f}", f"{100 * o['of_limit']:.0f} %"] if "of_limit" in o else ["", "", ""])] for o in p["operations"]])]
    if "quality" in report:
        q = report["quality"]
        out += [heading(3, "Cost of rounding, compared with float32"),
                table(["activations, KV cache", "tokens", "mean KL", "p99 KL", "same top token", "perplexity", "in float32"],
                      [[f"{q['activations']}, {q['kv_cache_dtype']}", str(q["tokens"]), f"{q['mean_kl']:.6f}", f"{q['p99_kl']:.5f}", f"{100 * q['top1_agreement']:.2f} %", f"{q['perplexity']:.4f}", f"{q['float_perplexity']:.4f}"]])]
    return out


def write_kernels(report):
    out = [heading(2, "Linear layers"), paragraph(f"{report['kernels']} kernels, {report['threads']} threads; {machine_of(report['machine'])}")]
    for shape in dict.fromkeys((r["outputs"], r["inputs"]) for r in report["results"]):
        results = [r for r in report["results"] if (r["outputs"], r["inputs"]) == shape]
        name = f"{shape[0]} x {shape[1]}"
        out += [heading(3, name), draw_kernels(results, f"Linear layers, {name}: share of the limit by weight type and rows"),
                table(["type, activations", "rows", "µs", "GMAC/s", "GB/s", "of limit"],
                      [[f"{r['type']}, {r['activations']}", str(r["rows"]), f"{1e6 * r['seconds']:.1f}", f"{r['multiply_adds_per_second'] / 1e9:.1f}", f"{r['bytes_per_second'] / 1e9:.2f}", f"{100 * r['of_limit']:.0f} %"] for r in results])]
    return out


def page(title, body):
    head = f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>'
    return "\n".join([head, heading(1, title), *body, "</body>", "</html>", ""])


def main():
    parser = argparse.ArgumentParser(prog="./dev bench report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", help="a model, as in `quire bench -m`; repeat for several (default: smollm2)")
    parser.add_argument("-p", "--prompt", default="512,4096", help="prompt lengths to prefill (default: %(default)s)")
    parser.add_argument("-n", "--generate", default="64", help="tokens to decode (default: %(default)s)")
    parser.add_argument("-b", "--batch", default="1,8,16,32", help="sequences that decode together (default: %(default)s)")
    parser.add_argument("-d", "--depth", default="4096", help="tokens already in the KV cache, for a second run with one sequence and the first prompt length; 0: no second run (default: %(default)s)")
    parser.add_argument("-r", "--repetitions", type=int, default=5, help="samples per test; the median counts (default: %(default)s)")
    parser.add_argument("--text", help="also measure the cost of rounding on this text file")
    parser.add_argument("--quality-tokens", type=int, default=1024, help="tokens of the text to compare (default: %(default)s)")
    parser.add_argument("--types", default="", help="weight types of the linear layers (default: all)")
    parser.add_argument("--shapes", default="2048x2048,8192x2048", help="shapes of the linear layers, OUTPUTSxINPUTS (default: %(default)s)")
    parser.add_argument("-M", "--rows", default="1,2,4,8,16,32,128,512", help="input rows of the linear layers (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build/report", help="directory for report.html and the JSON files (default: build/report)")
    parser.add_argument("--quire", default=str(ROOT / "build/release/quire"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.output
    folder.mkdir(parents=True, exist_ok=True)

    body, cpu = [], ""
    for i, model in enumerate(arguments.model or ["smollm2"]):
        report = measure_model(arguments, model)
        cpu = report["cpu"]
        name = Path(model).name.removesuffix(".gguf")
        label = f"{i + 1}-" + (re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "model")
        (folder / f"{label}.json").write_text(json.dumps(report, indent=1))
        body += write_model(report, name)
    kernels = measure_kernels(arguments)
    (folder / "kernels.json").write_text(json.dumps(kernels, indent=1))
    body += write_kernels(kernels)
    note = paragraph(f"Each rate is the median of {arguments.repetitions} samples; tests take turns. The limits come from the machine's memory bandwidth and "
                     "multiply rate, measured just before each sample (docs/performance.md). Point at a bar for its numbers.")
    (folder / "report.html").write_text(page(f"Quire on {cpu}, {datetime.date.today()}", [note, *body]))
    print(folder / "report.html")


if __name__ == "__main__":
    main()
