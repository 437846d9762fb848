"""--device: the emulated GPU, and devices that are not there."""

import os

import pytest

from conftest import GOLDEN, QUIRE, quire

LLAMA = GOLDEN / "models/llama"


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
    done = quire("run", "-m", LLAMA, "-p", "x", "--device", "emulated-cuda:7")
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
