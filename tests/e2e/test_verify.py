"""`quire verify` without a reference file: the kernel sets of this machine beside each other."""

import json
import subprocess

import pytest

from conftest import QUIRE


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    if not QUIRE.exists():
        pytest.skip(f"no binary at {QUIRE}")
    path = tmp_path_factory.mktemp("verify") / "tiny.gguf"
    subprocess.run([QUIRE, "synth", "--shape", "tiny", "--type", "q6_k", "-o", path], check=True, capture_output=True)
    return str(path)


def verify(*arguments):
    return subprocess.run([QUIRE, "verify", *arguments], capture_output=True, text=True, timeout=120)


def test_kernel_sets_agree_on_linears_and_on_the_model(model):
    done = verify("-m", model, "--json")
    if "has none to be compared with" in done.stderr:
        pytest.skip("this machine runs the reference kernels only")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] and report["beside"] == "reference" and report["activations"] != "f32"
    assert report["linears"] and [l["kernels"] for l in report["linears"]] == [m["kernels"] for m in report["models"]]
    for linears in report["linears"]:
        assert linears["equal"] and linears["matrices"] == 2 * 7 + 1 and linears["outputs_compared"] > 0
    for whole in report["models"]:
        assert whole["mean_kl"] <= 1e-4 and whole["greedy_equal"] == whole["greedy_compared"] > 0


@pytest.mark.parametrize("arguments", [["--kernel-sets", "reference"], ["--kernel-sets", "reference,abacus"], ["--tolerance", "1"]])
def test_what_compares_nothing_is_refused(model, arguments):
    done = verify("-m", model, *arguments)
    assert done.returncode in (1, 2) and done.stderr and not done.stdout
