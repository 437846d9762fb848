"""quire plan: from headers, configurations and shapes, on this machine and by data sheets."""

import json
import xml.etree.ElementTree

import pytest

from conftest import GOLDEN, MODEL, needs_model, quire, quire_json
from test_inspect import gguf
from test_memory_plan import sparse_model


def plan(*arguments):
    return quire_json("plan", *arguments)


def test_a_shape_on_a_data_sheet():
    p = plan("--shape", "llama-2-70b", "--weights", "f16", "--hardware", "a100", "--price", "2")
    assert p["memory"]["kv_cache_per_token"] == 2 * 2 * 80 * 8 * 128 and not p["memory"]["fits"] and p["memory"]["most_users"] == 0
    one = p["steps"][0]
    assert one["sequences"] == 1 and one["bound_by"] == "memory"
    assert abs(one["least_seconds"] - one["bytes"] / 2.039e12) < 1e-9
    assert p["load"]["ttft_seconds"] > 0.5 and p["cost_per_million"]["output_tokens"] > p["cost_per_million"]["prompt_tokens"] > 0
    two = plan("--shape", "llama-2-70b", "--weights", "f16", "--hardware", "a100", "--devices", "2")
    assert two["memory"]["fits"] and abs(two["steps"][0]["least_seconds"] * 2 - one["least_seconds"]) < 1e-9
    half = plan("--shape", "llama-2-70b", "--weights", "f16", "--hardware", "a100", "--efficiency", "0.5")
    assert abs(half["steps"][0]["least_seconds"] - 2 * one["least_seconds"]) < 1e-9


def test_caches_of_codes_take_a_half_and_a_quarter():
    sizes = {t: plan("--shape", "llama-2-70b", "--hardware", "a100", "--kv-cache-dtype", t)["memory"]["kv_cache_per_token"] for t in ("bf16", "int8", "fp8", "int4")}
    numbers = 2 * 80 * 8 * 128
    scales = 2 * 80 * 8
    assert sizes == {"bf16": 2 * numbers, "int8": numbers + 4 * scales, "fp8": numbers + 2 * scales, "int4": numbers / 2 + 2 * scales}


def test_ranks_gain_less_than_their_number():
    flags = ["--shape", "llama-2-70b", "--weights", "f16", "--hardware", "a100", "-u", "8"]
    p = plan(*flags, "-tp", "4")
    ranks, step = p["ranks"], p["ranks"]["steps"][0]
    assert ranks["gathers_per_step"] == 4 * 80 + 1
    assert ranks["weights_read"] == p["memory"]["weights"] / 4 and ranks["kv_cache"] == p["memory"]["kv_cache"] / 4
    assert step["one_seconds"] == p["steps"][0]["least_seconds"] and step["share_seconds"] == step["one_seconds"] / 4
    assert abs(step["gather_seconds"] - (321 * 10e-6 + step["received_bytes"] / 12.5e9)) < 1e-9
    assert 3 < step["gain"] < 4 and abs(step["gain"] * step["seconds"] - step["one_seconds"]) < 1e-9
    prompt = ranks["steps"][-1]  # 3,840 tokens in 8 steps
    assert abs(prompt["gather_seconds"] - (8 * 321 * 10e-6 + prompt["received_bytes"] / 12.5e9)) < 1e-9
    slow = plan(*flags, "-tp", "4", "--rank-latency", "1ms", "--rank-bandwidth", "1")["ranks"]["steps"][0]
    assert slow["gain"] < 1
    assert "ranks" not in plan(*flags)
    text = quire("plan", *flags, "-tp", "4").stdout
    assert "4 ranks, 10.0 us and 12.5 GB/s between them: 321 gathers in a step" in text, text
    assert quire("plan", *flags, "-tp", "4", "--devices", "2").returncode == 2
    assert quire("plan", *flags, "--rank-latency", "1ms").returncode == 2


def test_the_text_names_what_matters():
    done = quire("plan", "--shape", "llama-2-70b", "--hardware", "a100", "--tpot", "100ms")
    assert done.returncode == 0, done.stderr
    for part in ["68.98 B parameters", "NVIDIA A100", "KV cache", "fits                 no", "--devices 2", "compute-bound from", "TTFT", "users within"]:
        assert part in done.stdout, done.stdout


def test_a_model_that_does_not_fit_is_planned_by_its_headers(tmp_path):
    model = sparse_model(tmp_path / "big", 8192, 60)  # 120 GB
    p = plan(model, "--hardware", "a100", "--context", "2048")
    assert p["memory"]["weights"] > 90e9 and not p["memory"]["fits"]


def test_bounds_on_time_limit_users():
    def users(*flags):
        return plan("--shape", "llama-3.1-8b", "--weights", "q8_0", "--hardware", "h100", "--context", "2048", "--answer", "1536", *flags)["load"]["users_within_bounds"]

    everyone = users()
    assert everyone > users("--tpot", "15ms") > users("--tpot", "8ms") > 0 == users("--ttft", "1us")
    assert users("--tpot", "0.015") == users("--tpot", "15ms") == users("--tpot", "0.015s")


@needs_model
def test_this_machine_is_measured():
    p = plan(MODEL, "--context", "512", "--users", "4")
    assert p["hardware"]["measured"] and p["hardware"]["bytes_per_second"] > 1e8
    for step in p["steps"]:
        assert step["predicted_seconds"] > 0 and step["least_seconds"] > 0
    assert p["memory"]["fits"]


def test_steps_of_a_tiny_model_are_measured(tiny):
    p = plan(tiny("q4_k"), "--context", "256")
    assert [s["step"] for s in p["steps"]] == ["decode", "decode", "decode", "prefill"]
    assert all(s["predicted_seconds"] > 0 for s in p["steps"])
    fewer = plan(tiny("q4_k"), "--context", "256", "--no-probe")
    assert all(s["predicted_seconds"] is None for s in fewer["steps"])


@pytest.mark.parametrize("model", ["models/gemma2", "models/deepseek_v3", "models/mamba2", "models/qwen3_next", "models/gpt_oss", "encoders/bert"])
def test_families_of_all_kinds_are_planned_and_probed(model):
    p = plan(GOLDEN / model, "--context", "64")
    assert p["memory"]["fits"] and p["model"]["assumptions"] == [] and p["steps"][-1]["predicted_seconds"] > 0


def test_a_check_compares_with_the_model(tiny):
    c = quire_json("plan", tiny("q4_0"), "--check", "--check-prompts", "32", "--check-depths", "0,64", "--check-batches", "1,2", "--check-repetitions", "1")
    assert [(t["test"], t["batch"], t["depth"]) for t in c["tests"]] == [
        ("prefill", 1, 0), ("decode", 1, 0), ("decode", 2, 0), ("prefill", 1, 64), ("decode", 1, 64), ("decode", 2, 64)]
    assert all(t["predicted_seconds"] > 0 and t["measured_seconds"] > 0 for t in c["tests"])


def test_a_picture(tmp_path):
    file = tmp_path / "plan.svg"
    command = ["plan", "--shape", "mixtral-8x7b", "--hardware", "mi300x", "--svg", file]
    assert quire(*command).returncode == 0
    texts = [node.text for node in xml.etree.ElementTree.parse(file).iter() if node.tag.endswith("text")]
    assert "mixtral-8x7b on AMD Instinct MI300X" in texts and "decode, 32" in texts
    again = quire(*command)
    assert again.returncode == 1 and "exists; overwrite it with --force" in again.stderr
    assert quire(*command, "--force").returncode == 0
    assert quire("plan", "--shape", "tiny", "--hardware", "l4", "--context", "64", "--svg", tmp_path / "no/such/folder.svg").returncode == 1


def test_names_cannot_break_the_picture_or_the_terminal(tmp_path):
    machine = {"name": "box", "title": "<script>alert(1)</script>\u001b[2J & \"co\"", "memory_gb": 8, "bandwidth_gbs": 10, "tops": {"f32": 1}, "activations": "f32"}
    file = tmp_path / "box.json"
    file.write_text(json.dumps(machine))
    svg = tmp_path / "box.svg"
    done = quire("plan", "--shape", "tiny", "--context", "64", "--hardware", file, "--svg", svg)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    root = xml.etree.ElementTree.parse(svg)
    assert not [node for node in root.iter() if node.tag.endswith("script")]


def config(tmp_path, **changes):
    settings = {"architectures": ["ZebraForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 1000, "intermediate_size": 512} | changes
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings))
    return file


def test_unknown_families_are_planned_by_their_shape(tmp_path):
    p = plan("--hf-config", config(tmp_path), "--hardware", "l4", "--context", "128")
    assert p["model"]["parameters"] == 2 * 1000 * 256 + 4 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256
    assert "ZebraForCausalLM" in p["model"]["assumptions"][0] and "BF16 is assumed" in p["model"]["assumptions"][1]


def test_gguf_files_of_unknown_families_are_planned_by_their_tensors(tiny, tmp_path):
    file = tmp_path / "zebra.gguf"
    file.write_bytes(tiny("q4_0").read_bytes().replace(b"llama", b"zebra"))
    known, unknown = (plan(f, "--hardware", "l4", "--context", "128") for f in (tiny("q4_0"), file))
    assert unknown["model"]["weights"] == known["model"]["weights"] and '"zebra" is not a family' in unknown["model"]["assumptions"][0]
    assert unknown["steps"][0]["bytes"] == pytest.approx(known["steps"][0]["bytes"], rel=0.01)
    empty = tmp_path / "empty.gguf"
    empty.write_bytes(gguf(("general.architecture", "zebra"), ("zebra.block_count", "2")))
    done = quire("plan", empty, "--hardware", "l4")
    assert done.returncode == 1 and "zebra.block_count" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    file.write_bytes(tiny("q4_0").read_bytes()[:3000])
    assert quire("plan", file, "--hardware", "l4").returncode == 1


@pytest.mark.parametrize("changes, part", [
    ({"mamba_d_state": 16}, "mamba_d_state"),
    ({"hidden_size": None}, "hidden_size is missing"),
    ({"hidden_size": -1}, "hidden size"),
    ({"hidden_size": 10**12}, "hidden_size"),
    ({"num_hidden_layers": 10**9}, "number of layers"),
    ({"vocab_size": "many"}, "vocab_size"),
    ({"num_attention_heads": 0}, "heads"),
    ({"architectures": "Zebra"}, "architectures"),
])
def test_configurations_are_refused_by_field(tmp_path, changes, part):
    done = quire("plan", "--hf-config", config(tmp_path, **changes), "--hardware", "l4")
    assert done.returncode == 1 and part in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "null", "[" * 100_000])
def test_files_that_are_no_configuration_are_refused(tmp_path, text):
    file = tmp_path / "config.json"
    file.write_text(text)
    done = quire("plan", "--hf-config", file, "--hardware", "l4")
    assert done.returncode == 1 and "config.json" in done.stderr, done.stderr


@pytest.mark.parametrize("flags, part", [
    ([], "MODEL, --shape or --hf-config"),
    (["--shape", "tiny", "--hf-config", "x"], "give one of them"),
    (["--shape", "llama-9"], "not the name of a shape"),
    (["--shape", "layers=0,hidden=1,heads=1"], "layers must be between 1 and 1024, not 0"),
    (["--shape", "layers=1,hidden=64"], "heads"),
    (["--shape", "tiny", "--users", "0"], "--users must be between 1 and 1048576, not 0"),
    (["--shape", "tiny", "--users", "1e99"], "--users"),
    (["--shape", "tiny", "--context", "1"], "--context"),
    (["--shape", "tiny", "--ttft", "5 minutes"], "--ttft must be a time such as 500ms or 0.5s"),
    (["--shape", "tiny", "--ttft", "0"], "--ttft must be between 1us"),
    (["--shape", "tiny", "--tpot", "-3ms"], "--tpot must be between 1us"),
    (["--shape", "tiny", "--tpot", "nan"], "--tpot"),
    (["--shape", "tiny", "--weights", "q9_9"], "q9_9 is not a weight type"),
    (["--shape", "tiny", "--weights", "0"], "between 0.5 and 64 bits"),
    (["--shape", "tiny", "--price", "-1"], "--price must be between"),
    (["--shape", "tiny", "--efficiency", "2"], "--efficiency must be between"),
    (["--shape", "tiny", "--devices", "2"], "--devices: is for data sheets"),
    (["--shape", "tiny", "--check"], "--check: needs MODEL"),
    (["x.gguf", "--weights", "q4_0"], "--weights: is for --shape"),
])
def test_a_wrong_command_line_ends_with_2(flags, part):
    done = quire("plan", *flags)
    assert done.returncode == 2 and part in done.stderr and done.stdout == "", done.stderr


@pytest.mark.parametrize("flags, part", [
    (["--hardware", "h1000"], "Did you mean h100?"),
    (["--hardware", "a100", "--context", "100000"], "was trained for at most 512"),
    (["--hardware", "a100", "--context", "100", "--answer", "100"], "leaves no room for a prompt"),
])
def test_what_cannot_be_planned_ends_with_1(flags, part):
    done = quire("plan", "--shape", "tiny", *flags)
    assert done.returncode == 1 and part in done.stderr and done.stdout == "", done.stderr


def simulate(tmp_path, cluster, *flags):
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(cluster))
    command = ["plan", "--shape", "llama-3.2-1b", "--hardware", "a100", "--cluster", file, *flags]
    return quire(*command)


def test_simulates_clusters(tmp_path):
    cluster = {"replicas": [1, 2], "router": ["round_robin", "prefix"], "decode_replicas": [0, 1], "cache_tokens": 100000}
    load = ["--rate", "50", "--prompt", "600", "--output", "40", "--requests", "200", "--shared-prefix", "400"]
    svg = tmp_path / "cluster.svg"
    answer = json.loads(simulate(tmp_path, cluster, *load, "--json", "--price", "2", "--slo", "ttft=1s", "--svg", svg).stdout)
    assert answer["requests"] == 200
    assert len(answer["clusters"]) == 8
    for one in answer["clusters"]:
        assert 0 < one["ttft"]["p50_ms"] <= one["ttft"]["p95_ms"]
        assert 0 < one["busy"] <= 1 and 0 <= one["good"] <= 1
        assert 0.5 < one["cached"] < 400 / 600  # the shared prefix, but for the first requests
        assert one["machines"] == one["replicas"] + one["decode_replicas"]
        assert one["price_per_million_output"] > 0
    assert "<svg" in svg.read_text()
    text = simulate(tmp_path, cluster, *load).stdout
    assert "round_robin, 1 decode" in text and "TTFT p50" in text


@pytest.mark.parametrize(
    "cluster, flags, code, words",
    [
        ({}, [], 2, "needs a load"),
        ({"replica": 2}, ["--rate", "1"], 1, "Did you mean replicas?"),
        ({"cache_tokens": 64}, ["--rate", "1"], 1, "shorten them"),
        ({}, ["--rate", "1", "--prompt", "200000"], 1, "shorten them"),
        ({}, ["--rate", "1", "--users", "3"], 2, "--users"),
        ({}, ["--trace", "/nowhere"], 1, "/nowhere"),
        ({}, ["--rate", "0"], 2, "--rate"),
    ],
)
def test_refuses_clusters_that_make_no_sense(tmp_path, cluster, flags, code, words):
    done = simulate(tmp_path, cluster, *flags)
    assert done.returncode == code and words in done.stderr, done.stderr


@pytest.mark.parametrize("flag", [["--rate", "3"], ["--slo", "ttft=1s"]])
def test_a_load_needs_a_cluster(flag):
    done = quire("plan", "--shape", "tiny", "--hardware", "a100", *flag)
    assert done.returncode == 2 and "--cluster" in done.stderr
