"""--device: the emulated GPU, and devices that are not there."""

import os

import pytest

from conftest import GOLDEN, QUIRE, quire, quire_json
from test_ranks import answer, model  # noqa: F401 (a fixture)

LLAMA = GOLDEN / "models/llama"
needs_emulated_gpu = pytest.mark.skipif(
    not (QUIRE.parent / "libquire_emulated_cuda.so").exists(), reason="no library of the emulated GPU beside the binary"
)


@pytest.mark.parametrize("family", ["gpt_oss", "deepseek_v3", "qwen3_next"])
def test_verify_on_the_emulated_gpu(family):
    if not (QUIRE.parent / "libquire_emulated_cuda.so").exists():
        pytest.skip("no library of the emulated GPU beside the binary")
    model = GOLDEN / "models" / family
    done = quire("verify", "-m", model, model / "expected.safetensors", "--device", "emulated-cuda", "--activations", "f32")
    assert done.returncode == 0, done.stderr


def test_a_device_that_is_no_name_is_a_bad_command_line():
    for name in ("", "cu/da", "cuda:", "cuda:x", "cuda:-1", "../evil"):
        done = quire("run", "-m", LLAMA, "-p", "x", "--device", name)
        assert done.returncode == 2, name
        assert "--device" in done.stderr


def test_a_missing_library_is_named():
    done = quire("run", "-m", LLAMA, "-p", "x", "--device", "nothing:1")
    assert done.returncode == 1
    assert "libquire_nothing.so" in done.stderr


def test_a_gpu_that_is_not_there():
    if not (QUIRE.parent / "libquire_emulated_cuda.so").exists():
        pytest.skip("no library of the emulated GPU beside the binary")
    done = quire("run", "-m", LLAMA, "-p", "x", "--device", "emulated-cuda:64")
    assert done.returncode == 1
    assert "device" in done.stderr


def test_commands_that_need_the_processor_say_so():
    done = quire("verify", "-m", LLAMA, "--device", "emulated-cuda")
    assert done.returncode == 2
    assert "--device" in done.stderr


def test_the_environment_names_the_device():
    done = quire("run", "-m", LLAMA, "-p", "x", env=dict(os.environ, QUIRE_DEVICE="nothing"))
    assert done.returncode == 1
    assert "libquire_nothing.so" in done.stderr


@needs_emulated_gpu
def test_layers_on_the_gpu_and_the_others_on_the_cpu(model, tmp_path):
    (text := tmp_path / "text").write_text("A quire is a set of folded sheets. " * 20)
    one_layer = ["--device", "emulated-cuda:1", "-ngl", "1"]

    def perplexity(*flags):
        return quire_json("perplexity", "-m", model, "-f", text, "-c", "16", "--chunks", "2", "--activations", "f32", *flags)["perplexity"]

    assert perplexity(*one_layer) == pytest.approx(perplexity(), rel=1e-4)

    plan = quire_json("run", "-m", model, "-p", "x", "-n", "2", *one_layer)["memory"]
    cpu, gpu = plan["stages"]
    assert gpu["layers"] == 1 and gpu["first_layer"] == cpu["layers"] >= 1
    assert cpu["sent_bytes_per_token"] > 0 and gpu["sent_bytes_per_token"] == 0
    host = plan["host"]
    assert host["cache_bytes"] == cpu["cache_bytes"] and host["weight_bytes"] > cpu["weight_bytes"]
    assert sum(host[part] for part in ("weight_bytes", "cache_bytes", "activation_bytes", "other_bytes")) == host["bytes"] <= host["budget_bytes"]
    assert sum(row["bytes"] for row in plan["rows"]) == plan["bytes"] <= plan["budget_bytes"]


@needs_emulated_gpu
def test_the_error_names_the_layers_that_fit(model):
    least = ["run", "-m", model, "-p", "x", "-n", "1", "-c", "64", "--max-num-seqs", "1", "--max-num-batched-tokens", "16", "--device", "emulated-cuda:1"]
    few, all_layers = (quire_json(*least, "-ngl", layers)["memory"]["bytes"] for layers in ("1", "all"))
    between = ["--gpu-memory-utilization", str((few + all_layers) / 2 / 2**30)]  # of the device's memory
    done = quire(*least, *between)
    assert (done.returncode, "--gpu-layers 1 fits, the CPU then computes" in done.stderr) == (1, True), done.stderr
    assert [stage["layers"] for stage in quire_json(*least, *between, "-ngl", "auto")["memory"]["stages"]][1] == 1


@needs_emulated_gpu
def test_devices_that_are_ranks(model):
    """Two devices answer as one; each has about half of the weights, and of a cache of a given size."""
    least = ["-c", "64", "--max-num-seqs", "1", "--max-num-batched-tokens", "16"]
    two = [*least, "--device", "emulated-cuda:1,emulated-cuda:2", "-tp", "2"]
    assert answer(model, *two) == answer(model, *least, "--device", "emulated-cuda:1")
    one_plan, plan = (quire_json("run", "-m", model, "-p", "x", "-n", "1", *flags)["memory"] for flags in ([*least, "--device", "emulated-cuda:1"], two))
    assert "devices" not in one_plan and plan["devices"] == 2
    whole, half = (next(row["bytes"] for row in p["rows"] if row["what"] == "weights") for p in (one_plan, plan))
    assert whole / 2 < half < 0.9 * whole
    assert sum(row["bytes"] for row in plan["rows"]) == plan["bytes"] <= plan["budget_bytes"]


@needs_emulated_gpu
@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--device", "emulated-cuda:1,emulated-cuda:1", "-tp", "2"], "--device emulated-cuda:1,emulated-cuda:1 names emulated-cuda:1 twice"),
        (["--device", "emulated-cuda:1,emulated-cuda:2"], "names 2 devices, but --tensor-parallel-size is 1; name as many"),
        (["--device", "emulated-cuda:1,emulated-cuda:64", "-tp", "2"], "--tensor-parallel-size 2 needs 2 devices: there is no emulated device 64"),
        (["--device", "emulated-cuda", "-tp", "2", "-ngl", "1"], "cannot be combined with --gpu-layers 1, which is less than the model's"),
        (["--device", "emulated-cuda", "-tp", "2", "-pp", "2"], "--pipeline-parallel-size 2 works on the processor only"),
    ],
)
def test_devices_that_cannot_be_ranks(model, arguments, message):
    done = quire("run", "-m", model, "-p", "x", *arguments)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_no_layers_on_the_gpu(model):
    assert answer(model, "--device", "nothing", "-ngl", "0") == answer(model)
    done = quire("run", "-m", model, "-p", "x", "-n", "1", "--device", "nothing", "--gpu-layers", "0")
    assert "--gpu-layers 0: the CPU computes all layers; --device nothing is not used" in done.stderr


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["run", "-p", "x", "-ngl", "1"], 1, "--gpu-layers 1 needs a GPU; add --device cuda"),
        (["run", "-p", "x", "-ngl", "auto"], 1, "--gpu-layers auto needs a GPU"),
        (["run", "-p", "x", "-ngl", "some"], 2, "--gpu-layers must be a number of layers, auto or all, not some"),
        (["run", "-p", "x", "-ngl", "1.5"], 2, "--gpu-layers must be a number of layers, auto or all, not 1.5"),
        (["verify", "-ngl", "1"], 2, "--gpu-layers"),
    ],
)
def test_gpu_layers_that_cannot_be(model, arguments, code, message):
    done = quire(arguments[0], "-m", model, *arguments[1:])
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


@needs_emulated_gpu
@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "-p", "x", "-tp", "2"], "--device emulated-cuda:1 names 1 device, but --tensor-parallel-size is 2"),
        (["run", "-p", "x", "-pp", "2"], "--pipeline-parallel-size 2 works on the processor only"),
        (["bench", "-p", "8", "-n", "1", "-r", "1", "--profile"], "--profile shows the operations of one stage; leave out --gpu-layers 1"),
    ],
)
def test_what_does_not_go_with_gpu_layers(model, arguments, message):
    done = quire(arguments[0], "-m", model, *arguments[1:], "--device", "emulated-cuda:1", "-ngl", "1")
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """8 experts in each of 4 layers, two used."""
    path = tmp_path_factory.mktemp("mixture") / "tiny-moe.gguf"
    done = quire("synth", "--shape", "tiny-moe", "--type", "q4_0", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


@needs_emulated_gpu
def test_experts_on_the_cpu(mixture, tmp_path):
    (text := tmp_path / "text").write_text("A quire is a set of folded sheets. " * 20)
    on_gpu = ["--device", "emulated-cuda:1"]

    def perplexity(*flags):
        return quire_json("perplexity", "-m", mixture, "-f", text, "-c", "16", "--chunks", "2", "--activations", "f32", *flags)["perplexity"]

    assert perplexity(*on_gpu, "-ncmoe", "2") == pytest.approx(perplexity(), rel=1e-4)
    assert perplexity(*on_gpu, "-ngl", "2", "-ncmoe", "3") == pytest.approx(perplexity(), rel=1e-4)

    def memory(*flags):
        return quire_json("run", "-m", mixture, "-p", "x", "-n", "2", *on_gpu, *flags)["memory"]

    def weights(plan):
        return next(row["bytes"] for row in plan["rows"] if row["what"] == "weights")

    none, two, all_layers = memory(), memory("--n-cpu-moe", "2"), memory("-cmoe")
    assert "host" not in none and (two["host"]["cpu_moe_layers"], all_layers["host"]["cpu_moe_layers"]) == (2, 4)
    assert 0 < 2 * two["host"]["weight_bytes"] == all_layers["host"]["weight_bytes"] < weights(none)
    assert memory("-ngl", "2", "-ncmoe", "3")["host"]["cpu_moe_layers"] == 3
    assert "cpu_moe_layers" not in memory("-ngl", "2", "-ncmoe", "2")["host"]  # the CPU has these layers whole
    for plan in two, all_layers:
        host = plan["host"]
        assert weights(plan) + host["weight_bytes"] == weights(none)
        assert sum(host[part] for part in ("weight_bytes", "cache_bytes", "activation_bytes", "other_bytes")) == host["bytes"] <= host["budget_bytes"]
        assert sum(row["bytes"] for row in plan["rows"]) == plan["bytes"] <= plan["budget_bytes"]


@needs_emulated_gpu
def test_the_error_names_the_experts_that_fit(mixture):
    least = ["run", "-m", mixture, "-p", "x", "-n", "1", "-c", "64", "--max-num-seqs", "1", "--max-num-batched-tokens", "16", "--device", "emulated-cuda:1"]
    three, two = (quire_json(*least, "-ncmoe", layers)["memory"]["bytes"] for layers in ("3", "2"))
    between = ["--gpu-memory-utilization", str((three + two) / 2 / 2**30)]  # of the device's memory
    done = quire(*least, *between)
    assert (done.returncode, "; --n-cpu-moe 3 fits, the CPU then computes the experts of 3 of 4 layers" in done.stderr) == (1, True), done.stderr
    assert quire(*least, *between, "--n-cpu-moe", "3").returncode == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["-cmoe"], "--cpu-moe needs a GPU; add --device cuda, or leave it out"),
        (["-ncmoe", "2"], "--n-cpu-moe 2 needs a GPU"),
        (["--n-cpu-moe", "some"], "--n-cpu-moe must be a number, not 'some'"),
        (["--n-cpu-moe=-1"], "--n-cpu-moe must be between 0 and 2^31 - 1, not -1"),
        (["--cpu-moe", "--n-cpu-moe", "1"], "--cpu-moe cannot be combined with --n-cpu-moe"),
    ],
)
def test_experts_that_cannot_be_on_the_cpu(mixture, arguments, message):
    done = quire("run", "-m", mixture, "-p", "x", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_model_without_experts_has_none_on_the_cpu(model):
    done = quire("run", "-m", model, "-p", "x", "--cpu-moe")
    assert (done.returncode, f"--cpu-moe is for mixtures of experts, but {model} has no experts; leave it out" in done.stderr) == (2, True), done.stderr


@needs_emulated_gpu
@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--record", "record"], 2, "--cpu-moe cannot be combined with --record"),
        (["-tp", "2"], 1, "--device emulated-cuda:1 names 1 device, but --tensor-parallel-size is 2"),
        (["-pp", "2"], 1, "--pipeline-parallel-size 2 works on the processor only"),
        (["--expert-memory", "1MiB"], 1, "--expert-memory is a size, but --device emulated-cuda:1 needs all experts in its memory"),
    ],
)
def test_what_does_not_go_with_experts_on_the_cpu(mixture, arguments, code, message):
    done = quire("run", "-m", mixture, "-p", "x", "--device", "emulated-cuda:1", "--cpu-moe", *arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_the_cpu_has_all_experts_without_a_gpu(mixture):
    assert answer(mixture, "--device", "nothing", "-ngl", "0", "--cpu-moe") == answer(mixture)
