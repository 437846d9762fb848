"""An installed Quire is found by find_package and embedded in another program: examples/embed."""

import shutil
import subprocess

import pytest
from conftest import MODEL, QUIRE, ROOT, needs_model


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_model
@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")
def test_the_example_builds_against_an_installation_and_streams_an_answer(tmp_path):
    build = QUIRE.parent
    if not (build / "cmake_install.cmake").exists():
        pytest.skip(f"{QUIRE} is not in a build folder")
    prefix, example = tmp_path / "prefix", tmp_path / "example"
    run("cmake", "--install", build, "--prefix", prefix)
    assert (prefix / "bin/quire").exists() and (prefix / "include/quire/engine.h").exists()
    run("cmake", "-S", ROOT / "examples/embed", "-B", example, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", example)
    assert "Paris" in run(example / "embed", MODEL, "What is the capital of France?")
    wrong = subprocess.run([example / "embed", "no-such-model", "x"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "no-such-model" in wrong.stderr
