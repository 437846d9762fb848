"""The package over tiny random models, which need no download, and over SmolLM2 where it is."""

import os
import pathlib
import sys

os.environ["QUIRE_TUNE"] = "off"

import pytest

import quire

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/data"
ENCODERS = GOLDEN / "encoders-gguf"
TINY = str(ENCODERS / "qwen3_embedding.gguf")  # a decoder with a vocabulary
LONG = str(GOLDEN / "models-gguf/hunyuan.gguf")  # takes token ids, 262,144 of them
MODELS = pathlib.Path(os.environ.get("QUIRE_MODELS", pathlib.Path.home() / ".cache/quire/models"))
SMOLLM2 = pathlib.Path(os.environ.get("QUIRE_TEST_MODEL", MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"))

needs_model = pytest.mark.skipif(not SMOLLM2.exists(), reason=f"no model at {SMOLLM2}: ./dev fetch")

PYTHON = [sys.executable, *(["-S"] if sys.flags.no_site else [])]  # of tests that need a process

OPTIONS = {"threads": 2, "max_num_seqs": 16, "memory_bytes": 400 << 20}


@pytest.fixture(scope="session")
def tiny():
    with quire.LLM(TINY, **OPTIONS) as llm:
        yield llm


@pytest.fixture(scope="session")
def smollm2():
    if not SMOLLM2.exists():
        pytest.skip(f"no model at {SMOLLM2}: ./dev fetch")
    with quire.LLM(str(SMOLLM2), max_model_len=2048, threads=2) as llm:
        yield llm


@pytest.fixture
def load():
    opened = []

    def start(name, **options):
        opened.append(quire.LLM(str(ENCODERS / f"{name}.gguf"), **{**OPTIONS, **options}))
        return opened[-1]

    yield start
    for llm in opened:
        llm.close()
