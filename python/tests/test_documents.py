"""The programs of docs/python.md run, and its table of vLLM's options is complete."""

import dataclasses
import importlib.util
import os
import re
import subprocess

import pytest
from conftest import PYTHON, ROOT, SMOLLM2, needs_model

from quire import EngineArgs

DOCUMENT = (ROOT / "docs/python.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)


def run(program, *arguments):
    # The documents name the model that ./dev fetch downloads.
    environment = {**os.environ, "QUIRE_MODELS": str(SMOLLM2.parent)}
    return subprocess.run([*PYTHON, "-c", program, *arguments], capture_output=True, text=True, timeout=120, env=environment)


@needs_model
@pytest.mark.parametrize("program", [one for one in PROGRAMS if not re.search("simple_evaluate|adapters/", one)])  # one downloads its task, one has files of its own
def test_programs(program):
    for package in re.findall(r"^from (\w+)\S* import", program, re.M):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: ./dev clients")
    done = run(program)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    if "capital of France" in program:
        assert "Paris" in done.stdout


def test_every_option_that_has_no_effect_or_another_meaning_is_named():
    fields = {one.name for one in dataclasses.fields(EngineArgs)}
    named = set(re.findall(r"`(\w+)`", DOCUMENT))
    for name in (
        "dtype",
        "quantization",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "speculative_config",
        "seed",
        "enforce_eager",
        "swap_space",
        "trust_remote_code",
        "compilation_config",
    ):
        assert name in fields and name in named


@needs_model
def test_options_come_from_flags():
    program = """
import quire
parser = quire.EngineArgs.add_cli_args(quire.FlexibleArgumentParser())
parser.set_defaults(enforce_eager=True)
args = parser.parse_args()
with quire.LLM(**vars(args)) as llm:
    print(llm.model_info["max_model_len"], llm.model_info["threads"], quire.EngineArgs.from_cli_args(args).enforce_eager)
"""
    done = run(program, "--model", str(SMOLLM2), "--max_model_len=300", "--engine-options", '{"threads": 1}', "--gpu-memory-utilization", "0.5")
    assert done.stdout == "300 1 True\n", done.stderr
    wrong = run(program, "--max-model-len", "x")
    assert wrong.returncode == 2 and "--max-model-len" in wrong.stderr
