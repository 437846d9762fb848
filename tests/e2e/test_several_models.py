"""Several models in one server: loaded on request, within one memory, each with the answers that it has alone."""

import concurrent.futures
import json
import random

import pytest
from conftest import GOLDEN, Server, eventually, quire, skip_without_binary
from test_server import get, post

TINY = GOLDEN / "models"
NAMES = ["qwen2", "mistral", "gemma2"]


def served(names=NAMES):
    return [f"{name}={TINY / name}" for name in names]


def states(server):
    return {model["id"]: model["status"]["value"] for model in json.loads(get(server, "/v1/models")[1])["data"]}


def complete(server, model, prompt, tokens=12):
    status, answer = post(server, "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True})
    assert status == 200, answer
    return answer["choices"][0]["token_ids"]


def prompts_of(model, count=12):
    draw = random.Random(model)
    return [[draw.randrange(3, 200) for _ in range(draw.randrange(1, 60))] for _ in range(count)]


@pytest.fixture(scope="module")
def alone():
    """What each model answers in a server of its own."""
    skip_without_binary()
    answers = {}
    for name in NAMES:
        server = Server(model=TINY / name, name=name)
        answers[name] = [complete(server, name, prompt) for prompt in prompts_of(name)]
        assert server.stop()[0] == 0
    return answers


def test_each_answers_as_it_does_alone(alone):
    server = Server(models=served())
    assert states(server) == {"qwen2": "loaded", "mistral": "unloaded", "gemma2": "unloaded"}
    jobs = [(name, i) for name in NAMES for i in range(len(alone[name]))]
    random.Random(1).shuffle(jobs)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda job: complete(server, job[0], prompts_of(job[0])[job[1]]), jobs))
    for (name, i), ids in zip(jobs, results):
        assert ids == alone[name][i], (name, i)
    assert set(states(server).values()) == {"loaded"}
    code, log = server.stop()
    assert code == 0, log


def test_models_that_do_not_fit_together_take_turns(alone):
    small = ["--request-memory", "16MiB", "--max-body-size", "1000000", "--max-bodies-size", "2000000", "--max-replies-size", "2000000"]
    server = Server("--memory", "200MiB", *small, models=served())  # a model takes about 80 MiB
    jobs = [(name, i) for name in NAMES for i in range(4)]
    random.Random(2).shuffle(jobs)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda job: complete(server, job[0], prompts_of(job[0])[job[1]]), jobs))
    for (name, i), ids in zip(jobs, results):
        assert ids == alone[name][i], (name, i)
    assert "unloaded" in states(server).values()
    code, log = server.stop()
    assert code == 0 and "do not fit in memory together" in log, log


def test_idle_models_leave_and_come_back(alone):
    server = Server("--keep-alive", "0.2s", models=served(["mistral"]))
    assert eventually(lambda: states(server) == {"mistral": "unloaded"})
    assert complete(server, "mistral", prompts_of("mistral")[0]) == alone["mistral"][0]
    assert eventually(lambda: states(server) == {"mistral": "unloaded"})
    assert post(server, "/models/load", {"model": "mistral"}) == (200, {"success": True})
    assert server.stop()[0] == 0


def test_a_preset_says_how_each_model_is_served(tmp_path):
    preset = tmp_path / "models.ini"
    preset.write_text(f"; two models\n[first]\nmodel = {TINY / 'qwen2'}\nmax-model-len = 64\npinned = true\n\n[org/second:v1]\nmodel = {TINY / 'mistral'}\nload-on-startup = true\nno-prefix-cache = true\n")
    server = Server("--models-preset", str(preset), models=[])
    listed = {model["id"]: model for model in json.loads(get(server, "/v1/models")[1])["data"]}
    assert {name: model["status"]["value"] for name, model in listed.items()} == {"first": "loaded", "org/second:v1": "loaded"}
    assert listed["first"]["max_model_len"] == 64
    assert post(server, "/v1/completions", {"model": "third", "prompt": [5]})[0] == 404
    assert server.stop()[0] == 0


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "has no section [NAME]"),
        ("model = x\n", "model stands before the first [NAME]"),
        ("[a]\nmax-model-len = 5\n", "section [a]: --model is required"),
        ("[a]\nmodel = x\nmax-model-lem = 5\n", "section [a]"),
        ("[a]\nmodel = x\nmax-model-len = many\n", "section [a]: --max-model-len must be a number"),
        ("[a]\nmodel = x\nkeep-alive = soon\n", "section [a]: --keep-alive must be a duration"),
        ("[a]\nmodel = x\npinned = perhaps\n", "section [a]: --pinned"),
    ],
)
def test_bad_presets_are_refused(tmp_path, text, told):
    preset = tmp_path / "models.ini"
    preset.write_text(text)
    done = quire("serve", "--models-preset", preset)
    assert done.returncode == 2 and told in done.stderr, done.stderr


@pytest.mark.parametrize(
    "flags, code, told",
    [
        ([], 2, "--model"),
        (["--models-preset", "/no/such.ini"], 2, "/no/such.ini"),
        (["-m", f"a={TINY / 'qwen2'}", "-m", f"b={TINY / 'mistral'}", "--served-model-name", "c"], 2, "-m NAME=MODEL"),
        (["-m", f"a={TINY / 'qwen2'}", "-m", f"a={TINY / 'mistral'}"], 2, "two models have the name"),
        (["-m", f"a={TINY / 'qwen2'}", "-m", "b=/no/such"], 1, "/no/such"),
        (["-m", f"a={TINY / 'qwen2'}", "-m", f"b={TINY / 'mistral'}", "--record", "steps"], 2, "a file of its own"),
        (["-m", f"a={TINY / 'qwen2'}", "--keep-alive", "5"], 2, "must be a duration"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, code, told):
    done = quire("serve", "--port", "0", *flags, cwd=tmp_path)
    assert done.returncode == code and told in done.stderr, done.stderr


def test_a_broken_model_does_not_end_the_server(tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (TINY / "mistral").iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    server = Server(models=[*served(["qwen2"]), f"broken={broken}"])
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    status, answer = post(server, "/v1/completions", {"model": "broken", "prompt": [5]})
    assert status == 503 and answer["error"]["code"] == "model_not_loaded", json.dumps(answer)
    assert len(complete(server, "qwen2", [5, 6])) == 12
    assert server.stop()[0] == 0
