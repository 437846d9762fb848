"""quire plan --advise: measured advice on a small synthetic model, and bad command lines."""

import json

import pytest

from conftest import GOLDEN, MODEL, needs_model, quire


def advise(tmp_path, model, *arguments, **options):
    """With a folder of its own for what the kernels' tuning measures."""
    done = quire("plan", model, "--advise", "--budget", "6s", *arguments, timeout=110, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_advice_is_ranked_and_ends_with_a_command_line(tiny, tmp_path):
    model = tiny("bf16")
    a = json.loads(advise(tmp_path, model, "--workload", "classify", "--json"))
    assert a["workload"]["name"] == "classify" and a["workload"]["concurrency"] == 16 and a["seconds"] < 15
    assert a["default"]["tokens_per_second"] > 0 and a["objective"] == "tokens of answers per second"
    changes = [r for r in a["rows"] if not r.get("baseline") and r["how"] == "measured"]
    assert [r["gain"] for r in changes] == sorted((r["gain"] for r in changes), reverse=True)
    named = {r["optimization"] for r in a["rows"]} | {n["what"].split()[0] for n in a["not_tried"]}
    assert {"speculation", "activations", "threads", "batching"} <= named or a["model"]["threads"] == 1
    command = a["best"]["command"]
    assert command.startswith(f"quire serve -m {model}") and a["best"]["gain"] >= 1 and a["best"]["kl"] <= a["allowed_kl"] == 0.001
    for row in changes:
        assert row["advised"] == (f" {row['flag']} " in command + " ")  # not as the beginning of another value
        assert not row["advised"] or "kl" not in row or row["kl"] <= 0.001
    assert all(n["why"] for n in a["not_tried"])
    assert [b["concurrency"] for b in a["batching"]] == [1, 2, 4, 8, 16, 32]
    predicted = [r for r in a["rows"] if r["how"] == "predicted"]
    assert [r["choice"] for r in predicted] and all(r["gain"] > 0 and r["takes"] == "quire quantize" for r in predicted)


def test_the_text_says_what_was_measured(tiny, tmp_path):
    text = advise(tmp_path, tiny("q4_0"), "--slo", "ttft=20s,tpot=900ms", "-t", "1", "--kv-cache-dtype", "int8")
    for part in ["workload   chat: 4 requests at a time", "built-in English text", "95th percentiles of TTFT at most 20000 ms, TPOT at most 900 ms", "p95/bound",
                 "threads: there is one thread only", "bits already", "not tried", "tiled attention: always on"]:
        assert part in text, text
    assert text.splitlines()[-1].startswith("quire serve -m ") and "--kv-cache-dtype int" in text.splitlines()[-1]


def test_a_bound_that_nothing_meets_is_said(tiny, tmp_path):
    a = json.loads(advise(tmp_path, tiny("q4_0"), "--slo", "ttft=0.0001ms", "--json"))
    assert not a["default"]["meets"] and not a["best"]["meets"]
    assert "NOT MET" in advise(tmp_path, tiny("q4_0"), "--slo", "ttft=0.0001ms")


def test_a_workload_from_a_trace(tiny, tmp_path):
    (tmp_path / "trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,50,6\n2023-11-16 18:17:04.0,5000,900\n")
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 40)
    file = tmp_path / "w.json"
    file.write_text(json.dumps({"trace": "trace.csv", "text": "text.txt", "concurrency": 2, "max_prompt_tokens": 90, "max_answer_tokens": 10}))
    w = json.loads(advise(tmp_path, tiny("q4_0"), "--workload", file, "--json"))["workload"]
    assert w["text"].endswith("text.txt") and w["concurrency"] == 2 and w["prompt_tokens"] <= 70


@needs_model
def test_advice_for_the_default_model(tmp_path):
    a = json.loads(advise(tmp_path, MODEL, "--workload", "classify", "--json"))
    assert a["best"]["gain"] >= 1 and a["model"]["quantization"] == "Q4_1"


@pytest.mark.parametrize("arguments, code, part", [
    (["--budget", "0s"], 2, "between"),
    (["--budget", "1ms"], 2, "must be between 5s and 7200s, not 1ms"),
    (["--budget", "9999999s"], 2, "between"),
    (["--budget", "soon"], 2, "must be a time such as 500ms"),
    (["--slo", "ttft=500"], 2, "ttft=500ms"),
    (["--slo", "tpot=5min"], 2, "ttft=500ms"),
    (["--slo", "speed=5ms"], 2, "ttft=500ms"),
    (["--slo", ""], 2, "ttft=500ms"),
    (["--allow-kl", "-1"], 2, "between 0 and 100"),
    (["--workload", "/no/such/file"], 1, "the built-in workloads are chat, rag, classify"),
    (["--hardware", "a100"], 2, "measures this machine"),
    (["--users", "4"], 2, "--users"),
    (["--check"], 2, "--check"),
])
def test_bad_command_lines(tiny, arguments, code, part):
    done = quire("plan", tiny("q4_0"), "--advise", *arguments, timeout=20)
    assert done.returncode == code and part in done.stderr, done.stderr


def test_flags_of_advice_need_it(tiny):
    for flag in (["--slo", "ttft=1s"], ["--workload", "rag"], ["--budget", "60s"], ["--exhaustive"]):
        assert quire("plan", tiny("q4_0"), *flag).returncode == 2
    assert quire("plan", "--shape", "tiny", "--advise").returncode == 2


@pytest.mark.parametrize("workload, part", [
    ({"requests": 0}, "requests"),
    ({"answer_token": 3}, "Did you mean answer_tokens?"),
    ({"kind": "poetry"}, "chat, rag, classify"),
    ({"text": "missing.txt"}, "missing.txt"),
    ({"trace": "missing.csv"}, "missing.csv"),
])
def test_bad_workloads(tiny, tmp_path, workload, part):
    file = tmp_path / "w.json"
    file.write_text(json.dumps(workload))
    done = quire("plan", tiny("q4_0"), "--advise", "--workload", file, timeout=20)
    assert done.returncode == 1 and part in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_models_that_cannot_be_advised():
    embeds = quire("plan", GOLDEN / "encoders/bert", "--advise", timeout=20)
    assert embeds.returncode == 1 and "models that generate" in embeds.stderr, embeds.stderr
    no_words = quire("plan", GOLDEN / "models/llama", "--advise", timeout=20)
    assert no_words.returncode == 1 and "no vocabulary" in no_words.stderr, no_words.stderr
