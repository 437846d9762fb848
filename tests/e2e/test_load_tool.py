"""quire bench serve against the real server, whose own counters say what happened."""

import json
import urllib.request

import pytest
from conftest import quire


def bench(*arguments, code=0):
    done = quire("bench", "serve", *arguments, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def counters(server):
    text = urllib.request.urlopen(server.base + "/metrics").read().decode()
    return {name: sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("quire:" + name))
            for name in ("prompt_tokens_total", "generation_tokens_total", "request_success_total")}


@pytest.mark.parametrize("how", [["-c", 3], ["--rate", 20]])
@pytest.mark.parametrize("prompts", ["tokens", "text", "chat"])
def test_counts_match_the_servers_own(server, how, prompts):
    before = counters(server)
    r = json.loads(bench("--url", server.base, *how, "-n", 6, "-i", 40, "-o", 5, "--warmup", 0, "--json", "--prompts", prompts).stdout)
    after = {name: value - before[name] for name, value in counters(server).items()}
    assert r["model"] == "smollm2" and r["completed"] == 6 and r["failed"] == 0
    assert r["output_tokens"] == 6 * 5 == after["generation_tokens_total"]
    assert r["input_tokens"] == after["prompt_tokens_total"]
    assert after["request_success_total"] == 6
    if prompts == "tokens":
        assert r["input_tokens"] == 6 * 40
    else:
        assert 6 * 40 <= r["input_tokens"] <= 6 * (40 + 40)  # a word of two tokens, a chat template
    assert 0 < r["ttft_ms"]["p50"] <= r["e2e_ms"]["p50"]


def test_a_trace_sets_lengths_and_times(server, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0,30,4\n2023-11-16 18:15:56.0,9000,3\n")
    samples = tmp_path / "samples"
    out = bench("--url", server.base, "--trace", trace, "--time-scale", 0.1, "--max-input", 100, "--samples", samples, "--slo", "e2e=60s").stdout
    assert "(1 of 2 shortened)" in out and "2 of 2 within the service level" in out
    first, second = map(json.loads, samples.read_text().splitlines())
    assert (first["input_tokens"], first["output_tokens"]) == (30, 4)
    assert (second["input_tokens"], second["output_tokens"]) == (100, 3)
    assert second["intended"] == 1.0 and 1.0 <= second["sent"] < 2.0


def test_failures_exit_with_1_and_a_reason(server):
    done = bench("--url", server.base, "-c", 1, "-n", 2, "-i", 3000, "-o", 4, "--warmup", 0, code=1)
    assert "2 x HTTP 400" in done.stdout and "2 of 2 requests failed" in done.stderr
    assert "is a server running there" in bench("--url", "http://127.0.0.1:9", "-c", 1, code=1).stderr
    for wrong in (["--url", "ftp://x"], ["--url", server.base, "--token-ids", "5"], ["--url", server.base, "--slo", "x"], ["--url", server.base, "--extra", "[]"]):
        assert len(bench(*wrong, "-c", 1, code=1).stderr.splitlines()) == 1
    bench("--url", server.base, code=2)


def test_an_unwritable_samples_file_is_reported_before_the_run(server, tmp_path):
    before = counters(server)
    done = bench("--url", server.base, "-c", 1, "-n", 1, "--samples", tmp_path, code=1)
    assert f"--samples {tmp_path}" in done.stderr and counters(server) == before
