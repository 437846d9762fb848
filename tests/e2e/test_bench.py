"""quire bench on a small synthetic model: which cases it measures, and that its sums add up."""

import json
import os
import pty
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from conftest import QUIRE, ROOT, quire, quire_json


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("q4_k")


def test_each_combination_is_measured_and_compared_with_its_limit(model):
    report = quire_json("bench", "-m", model, "-p", "16,40", "-n", "4", "-b", "1,3", "-d", "0,20", "-r", "3")
    tests = [(r["test"], r["tokens"], r["depth"], r["batch"]) for r in report["results"]]
    assert tests == [(*test, depth, batch) for depth in (0, 20) for test, batch in ((("prefill", 16), 1), (("prefill", 40), 1), (("decode", 4), 1), (("decode", 4), 3))]
    for r in report["results"]:
        assert len(r["samples"]) == 3
        assert r["tokens_per_second"] == sorted(r["samples"])[1]
        assert r["of_limit"] > 0 and r["limit_tokens_per_second"] > 0 and r["bytes_read"] > 0
    decode = {(r["depth"], r["batch"]): r["bytes_read"] for r in report["results"] if r["test"] == "decode"}
    token = decode[20, 1] - decode[0, 1]  # 20 tokens of cache more
    assert decode[20, 3] - decode[0, 3] == pytest.approx(3 * token)


def test_tests_with_adapters_are_compared_with_those_without(model):
    flags = ("bench", "-m", model, "-p", "16", "-n", "4", "-b", "1,3", "-r", "2", "--adapters", "2", "--adapter-rank", "8", "--adapter-modules", "q_proj,v_proj")
    report = quire_json(*flags)
    tests = [(r["test"], r["batch"], r["adapters"]) for r in report["results"]]
    assert tests == [(*test, adapters) for test in (("prefill", 1), ("decode", 1), ("decode", 3)) for adapters in (0, 2)]
    for without, with_adapters in zip(report["results"][::2], report["results"][1::2]):
        ratios = sorted(b / a for a, b in zip(without["samples"], with_adapters["samples"]))
        assert with_adapters["of_rate_without"] == pytest.approx(sum(ratios) / 2) and "of_rate_without" not in without
    read = {(r["batch"], r["adapters"]): r["bytes_read"] for r in report["results"] if r["test"] == "decode"}
    one = read[1, 2] - read[1, 0]  # bytes of an adapter
    assert one > 0 and read[3, 2] - read[3, 0] == pytest.approx(2 * one)
    text = quire(*flags).stdout
    assert re.search(r"\+ 2 adapters .*\nprefill 16 .*\ndecode 4 +1 .*\ndecode 4 +3 +0 +\d\.\d{3} .* %\n", text), text
    assert all(len(line) <= 80 for line in text.splitlines() if str(model) not in line and not line.startswith("limit:")), text
    assert quire("bench", "-m", model, "--adapters", "-1").returncode == 2
    assert quire("bench", "-m", model, "--adapters", "1", "--adapter-rank", "0").returncode == 2
    assert quire("bench", "-m", model, "--adapters", "1", "--adapter-modules", "qkv").returncode == 2


def test_a_profile_adds_up_to_its_step(model):
    report = quire_json("bench", "-m", model, "-p", "32", "-n", "8", "-r", "1", "--profile")
    for profile in report["profiles"]:
        operations = {o["operation"]: o for o in profile["operations"]}
        assert sum(o["seconds"] for o in operations.values()) == pytest.approx(profile["step_seconds"])
        assert sum(o["share"] for o in operations.values()) == pytest.approx(1)
        assert all(o["seconds"] > 0 for name, o in operations.items() if name not in ("rest", "sampling"))
        assert {"qkv", "attention", "o", "gate/up", "down", "head"} == {name for name, o in operations.items() if "of_limit" in o}
        assert operations["qkv"]["calls"] == operations["attention"]["calls"] == 2  # layers
    text = quire("bench", "-m", model, "-p", "128", "-n", "8", "-b", "1,32", "-d", "0,256", "-r", "1", "--profile").stdout
    assert "\noperation " in text and all(len(line) <= 80 for line in text.splitlines() if str(model) not in line), text


def test_quality_measures_rounding_only(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 20)
    flags = ("bench", "-m", model, "-p", "0", "-n", "0", "--quality", "--text", text, "--quality-tokens", "600")
    quality = quire_json(*flags)["quality"]
    assert 0 < quality["mean_kl"] <= quality["p99_kl"] <= quality["max_kl"] and quality["mean_kl"] < 0.5
    exact = quire_json(*flags, "--activations", "f32", "--kv-cache-dtype", "f32")["quality"]
    assert exact["mean_kl"] == 0 and exact["top1_agreement"] == 1 and exact["perplexity"] == exact["float_perplexity"]
    assert exact["float_perplexity"] == quality["float_perplexity"] != quality["perplexity"]


def test_perplexity_scores_the_second_half_of_each_chunk(model, tiny, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 3)
    measured = quire_json("perplexity", "-m", model, "-f", text, "-c", "16", "--chunks", "2")
    assert measured["tokens"] == 2 * 7 and measured["perplexity"] > 1
    assert quire_json("perplexity", "-m", model, "-f", text, "-c", "3", "--chunks", "2")["tokens"] == 2
    assert quire("perplexity", "-m", model, "-f", text, "-c", "2").returncode == 1  # would score none
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny("f32").read_bytes()[:-4] + b"\xff" * 4)  # a NaN in the last matrix
    done = quire("perplexity", "-m", broken, "-f", text, "-c", "16", "--json")
    assert done.returncode == 1 and "the file is damaged" in done.stderr and not done.stdout


def test_kernels_are_measured_for_each_type_shape_and_row_count():
    report = quire_json("bench", "kernels", "--types", "q4_0,bf16", "--shapes", "64x96,33x64", "-M", "1,5", "-r", "1", "--memory", "1")
    found = [(r["type"], r["outputs"], r["inputs"], r["rows"], r["activations"]) for r in report["results"]]
    assert found == [(t, *shape, rows, a) for t, a in (("Q4_0", "int8"), ("BF16", "bf16")) for shape in ((64, 96), (33, 64)) for rows in (1, 5)]
    for r in report["results"]:
        assert r["multiply_adds_per_second"] * r["seconds"] == pytest.approx(r["outputs"] * r["inputs"] * r["rows"])
        assert r["of_limit"] > 0


def test_every_loop_of_a_models_linears_is_measured(model):
    report = quire_json("bench", "tune", "-m", model, "--seconds", "0.2")
    assert report["cpu"] and report["model"] == str(model) and report["threads"] > 0 and report["machine"]
    assert (report["kinds"] == []) == (report["kernels"] == "reference")  # which have one loop for everything
    for kind in report["kinds"]:
        assert f"{kind['inputs']} cols, {kind['rows']} rows" in kind["kind"] and len(kind["loops"]) > 1
        assert [loop["built_in"] for loop in kind["loops"]] == [True] + [False] * (len(kind["loops"]) - 1)
        assert sum(loop["chosen"] for loop in kind["loops"]) == 1
        for loop in kind["loops"]:
            assert loop["samples"] >= 3 and loop["bytes_per_second"] > 0
            assert loop["of_limit"] == pytest.approx(loop["multiply_adds_per_second"] / kind["limit_multiply_adds_per_second"])


@pytest.mark.parametrize("arguments", [["kernels", "--types", "q9"], ["kernels", "--shapes", "5x"], ["kernels", "--types", "q4_k", "--shapes", "5x32"], []])
def test_impossible_measurements_are_refused(arguments):
    done = quire("bench", *arguments)
    assert done.returncode in (1, 2) and done.stderr and not done.stdout


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    turns = [{"turns": ["say it again and again and again and again", "shorter"]}, {"prompt": "one two three one two three one two"}, {"prompt": "x"}]
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return path


@pytest.mark.parametrize("parallel", [1, 2])
def test_speculation_is_measured_with_the_same_answers(model, prompts, parallel):
    flags = ("--speculative", "ngram", "--num-speculative-tokens", 4, "--speculate-always", "--prompts", prompts, "-n", 24, "--parallel", parallel, "-c", 256)
    report = quire_json("bench", "speculative", "-m", model, *flags)
    assert (report["suite"], report["prompts"], report["parallel"], report["num_speculative_tokens"]) == (str(prompts), 3, parallel, 4)
    (r,) = report["results"]
    assert r["drafter"] == "ngram" and len(r["samples"]) == (3 if parallel == 1 else 2)
    assert r["off"]["tokens_per_step"] == 1 <= r["on"]["tokens_per_step"]
    assert r["ratio"] == pytest.approx(r["on"]["tokens_per_second"] / r["off"]["tokens_per_second"])
    assert r["median_ratio"] > 0
    assert sum(r["shares"].values()) == pytest.approx(1) and all(0 <= share <= 1 for share in r["shares"].values())
    assert [d["depth"] for d in r["acceptance"]] == [1, 2, 3, 4] and r["drafts"] == r["acceptance"][0]["drafted"] > 0
    assert all(0 <= d["right"] <= d["drafted"] and d["share"] == d["right"] / d["drafted"] for d in r["acceptance"])
    assert [c["rows"] for c in r["step_costs"]] == ([1, 2, 3, 4, 5] if parallel == 1 else [1, 2, 3, 4, 5, 6, 7, 8, 10])
    assert all(c["seconds"] > 0 for c in r["step_costs"])
    expected = r["expected"]
    assert 0 <= expected["acceptance"] <= 1 and 1 <= expected["depth"] <= 4 and 1 <= expected["tokens_per_step"] <= 5
    assert expected["tokens_per_second"] > 0 and expected["tokens_per_second_by_depth"] > 0
    if parallel == 1:  # no step has rows of prompts and of answers
        assert r["on"]["tokens"] == r["off"]["tokens"] == sum(s["tokens"] - 1 for s in r["samples"])
        assert r["verify_steps"] == r["drafts"] <= r["on"]["steps"]


def test_speculation_is_reported_on_a_page(model, prompts):
    done = quire("bench", "speculative", "-m", model, "--prompts", prompts, "-n", 8, "-t", 2)
    assert done.returncode == 0, done.stderr
    assert ": 3 prompts, 1 at a time, up to 8 tokens each, greedy; drafts of up to 8" in done.stdout
    assert "\ndrafter " in done.stdout and "\nexpected " in done.stdout and "\nright to depth " in done.stdout
    assert len(re.findall("^ngram ", done.stdout, re.M)) == 3
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if str(model) not in line and str(prompts) not in line), done.stdout


@pytest.mark.parametrize("flags, code, words", [
    (["--speculative", "psychic"], 2, ["--speculative", "psychic", "ngram"]),
    (["--num-speculative-tokens", "0"], 2, ["--num-speculative-tokens", "between 1 and 64"]),
    (["-n", "1"], 2, ["--generate", "between 2"]),
    (["--suite", "prose"], 2, ["--suite"]),
    (["--suite", "chat"], 2, ["--prompts"]),
    (["--suite", "copy", "--prompts", "x"], 2, ["--suite copy"]),
    (["--suite", "misleading", "--prompts", "x"], 2, ["--suite misleading"]),
    (["--temp", "-1"], 2, ["--temp"]),
    (["--prompts", "{tmp}/none.jsonl"], 1, ["none.jsonl"]),
    (["--prompts", "{tmp}"], 1, ["regular file"]),
    (["--prompts", "{tmp}/broken.jsonl"], 1, ["broken.jsonl:2: turns[0]: expected a string, found 7"]),
    (["--suite", "copy", "-c", "64"], 1, ["prompt quote a paragraph has", "--max-model-len 64"]),
])
def test_bad_flags_of_speculation_are_explained(model, tmp_path, flags, code, words):
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a"}\n{"turns": [7]}\n')
    done = quire("bench", "speculative", "-m", model, *(flag.format(tmp=tmp_path) for flag in flags))
    assert done.returncode == code and not done.stdout, (done.returncode, done.stderr)
    assert all(word in done.stderr for word in words), done.stderr


def test_a_report_is_one_page_with_charts_of_all_results(model, tmp_path):
    flags = ("-p", "16", "-n", "4", "-b", "1,2", "-d", "32", "-r", "1", "--types", "q4_0,q8_0", "--shapes", "64x64", "-M", "1,4", "-o", str(tmp_path))
    command = [sys.executable, ROOT / "scripts/bench_report.py", "--quire", str(QUIRE), "-m", model, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert not re.search(r"(src|href)=", page)  # needs no other file
    charts = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]
    svg = "{http://www.w3.org/2000/svg}"
    titles = [chart.find(svg + "title").text for chart in charts]
    assert len(charts) == 3 and all(title.startswith(f"{model.stem}, Q4_K: ") for title in titles[:2])
    assert [sum(line.get("class") == "limit" for line in chart.iter(svg + "line")) for chart in charts] == [1, 0, 1]
    bars = [[r for r in chart.iter(svg + "rect") if r.find(svg + "title") is not None] for chart in charts]
    assert len(bars[0]) == 2 * 5  # each test and its limit: a prefill and two decodes, and one of each at depth
    assert len(bars[1]) == 5 * 11  # operations and the rest
    assert len(bars[2]) == 2 * 2
    assert sum(float(bar.get("width")) for bar in bars[1][:11]) == pytest.approx(560, abs=1)
    measured = json.loads(next(tmp_path.glob("1-*.json")).read_text())
    assert all(f"{100 * r['of_limit']:.0f} %" in page for r in measured["results"])


def test_synth_overwrites_only_with_force_and_only_files(tmp_path):
    path = tmp_path / "x.gguf"
    synth = ["synth", "--shape", "tiny", "-o", path]
    assert quire(*synth).returncode == 0
    before = path.read_bytes()
    refused = quire(*synth, "--seed", 2)
    assert refused.returncode == 1 and "--force" in refused.stderr and path.read_bytes() == before
    assert quire(*synth, "--seed", 2, "--force").returncode == 0 and path.read_bytes() != before
    os.mkfifo(tmp_path / "pipe")  # has no reader
    pipe = quire("synth", "--shape", "tiny", "--force", "-o", tmp_path / "pipe", timeout=20)
    assert pipe.returncode == 1 and "not a regular file" in pipe.stderr


def test_synth_lists_its_types(tmp_path):
    wrong = quire("synth", "--type", "q9", "-o", tmp_path / "x.gguf")
    assert wrong.returncode == 1 and "q4_0, q4_1" in wrong.stderr and "bf16" in wrong.stderr
    assert "q4_0, q4_1" in " ".join(quire("synth", "--help").stdout.split())


def test_progress_is_shown_on_a_terminal_and_erased(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 3)
    commands = {"loading": ["perplexity", "-m", model, "-f", text, "-c", "16"],
                "measuring": ["bench", "-m", model, "-p", "16", "-n", "0", "-r", "1"],
                "comparing": ["verify", "-m", model],
                "writing tensors": ["synth", "--shape", "tiny", "-o", tmp_path / "x.gguf"]}
    for stage, command in commands.items():
        terminal, other = pty.openpty()
        done = subprocess.run([QUIRE, *map(str, command)], stdout=subprocess.PIPE, stderr=other, timeout=60)
        os.close(other)
        shown = os.read(terminal, 65536).decode()
        os.close(terminal)
        assert stage in shown and shown.rpartition("\r\x1b[K")[1], (done, shown)
        assert stage not in shown.rpartition("\r\x1b[K")[2] and b"\x1b" not in done.stdout
    assert quire(*commands["loading"]).stderr == ""
