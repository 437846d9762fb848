"""LoRA adapters of tiny models: in `quire run`, in requests, loaded and unloaded by clients."""

import concurrent.futures
import json

import pytest
from conftest import GOLDEN, Server, quire, skip_without_binary
from test_server import get, post

LLAMA, ADAPTERS = GOLDEN / "models/llama", GOLDEN / "adapters"
PROMPT = [5, 9, 33, 70, 12, 200, 8]


def complete(server, model, prompt=PROMPT):
    status, answer = post(server, "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
    assert status == 200, answer
    assert answer["model"] == model
    return answer["choices"][0]["token_ids"]


def ids_of(server):
    return [model["id"] for model in json.loads(get(server, "/v1/models")[1])["data"]]


def alone(name, **more):
    skip_without_binary()
    server = Server("--lora", f"{name}={ADAPTERS / name}", model=LLAMA, name="base", **more)
    answers = complete(server, "base"), complete(server, name)
    assert server.stop()[0] == 0
    return answers


def test_requests_name_their_adapter():
    base, llama = alone("llama")
    rslora = alone("llama_rslora")[1]
    assert len({tuple(base), tuple(llama), tuple(rslora)}) == 3
    server = Server("--lora", f"one={ADAPTERS / 'llama'}", "--lora", str(ADAPTERS / "llama_rslora"), model=LLAMA, name="base")
    wanted = {"base": base, "one": llama, "llama_rslora": rslora}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        names = list(wanted) * 8
        for name, answer in zip(names, pool.map(lambda name: complete(server, name), names)):
            assert answer == wanted[name], name
    models = {model["id"]: model for model in json.loads(get(server, "/v1/models")[1])["data"]}
    assert set(models) == set(wanted)
    assert models["one"]["parent"] == "base" and "parent" not in models["base"]
    assert json.loads(get(server, "/v1/models/one")[1])["parent"] == "base"
    assert json.loads(get(server, "/lora-adapters")[1]) == [{"id": 0, "name": "one", "model": "base"}, {"id": 1, "name": "llama_rslora", "model": "base"}]
    assert post(server, "/v1/completions", {"model": "two", "prompt": PROMPT})[0] == 404
    status, answer = post(server, "/v1/load_lora_adapter", {"lora_name": "two", "lora_path": str(ADAPTERS / "llama")})
    assert status == 400 and "--lora-memory" in answer["error"]["message"]
    assert post(server, "/v1/unload_lora_adapter", {"lora_name": "one"})[0] == 400
    assert server.stop()[0] == 0


def test_clients_load_and_unload_adapters():
    base, llama = alone("llama")
    server = Server("--lora-memory", "1MiB", model=LLAMA, name="base")
    assert ids_of(server) == ["base"]
    for _ in range(3):
        assert post(server, "/v1/load_lora_adapter", {"lora_name": "one", "lora_path": str(ADAPTERS / "llama")}) == (200, {"success": True})
        assert ids_of(server) == ["base", "one"]
        assert complete(server, "one") == llama and complete(server, "base") == base
        assert post(server, "/v1/unload_lora_adapter", {"lora_name": "one"}) == (200, {"success": True})
        assert ids_of(server) == ["base"]
        assert post(server, "/v1/completions", {"model": "one", "prompt": PROMPT})[0] == 404
    for body, wrong in [({"lora_name": "x", "lora_path": "/nowhere"}, "there is no adapter"), ({"lora_name": "x"}, "lora_path"), ({"lora_name": "", "lora_path": str(ADAPTERS / "llama")}, "1 to 256 bytes"),
                        ({"lora_name": "base", "lora_path": str(ADAPTERS / "llama")}, "the model's own name"), ({"lora_name": "x", "lora_path": str(ADAPTERS / "glm")}, "another model"),
                        ({"lora_name": "x", "lora_path": str(LLAMA)}, "adapter_config.json")]:
        status, answer = post(server, "/v1/load_lora_adapter", body)
        assert 400 <= status < 500 and wrong in answer["error"]["message"], answer
    status, answer = post(server, "/v1/unload_lora_adapter", {"lora_name": "one"})
    assert status == 404 and "no adapter" in answer["error"]["message"]
    assert server.stop()[0] == 0


def test_places_are_counted():
    llama, dora = alone("llama")[1], alone("llama_dora")[1]
    server = Server("--max-loras", "1", "--max-lora-rank", "4", model=LLAMA, name="base")

    def load(name, path):
        return post(server, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})

    assert load("one", ADAPTERS / "llama")[0] == 200 and complete(server, "one") == llama
    status, answer = load("two", ADAPTERS / "llama_dora")
    assert status == 503 and "--max-loras" in answer["error"]["message"]
    assert post(server, "/v1/unload_lora_adapter", {"lora_name": "one"})[0] == 200
    assert load("two", ADAPTERS / "llama_dora")[0] == 200 and complete(server, "two") == dora
    assert server.stop()[0] == 0
    server = Server("--max-loras", "1", "--max-lora-rank", "3", model=LLAMA, name="base")
    status, answer = load("one", ADAPTERS / "llama")
    assert status == 400 and "--max-lora-rank" in answer["error"]["message"]
    assert server.stop()[0] == 0


def test_control_vectors_change_all_answers(tmp_path):
    first, second = (str(GOLDEN / f"control-vectors/{name}.gguf") for name in ("first", "second"))
    prompt = PROMPT * 10  # several pages

    def answers(*flags, cached=False):
        cache = ("--cache-dir", str(tmp_path / "cache")) if cached else ("--no-prefix-cache",)
        server = Server(*flags, *cache, model=LLAMA, name="base")
        result = [complete(server, "base", prompt) for _ in range(2)]
        assert server.stop()[0] == 0
        assert result[0] == result[1]
        return result[0]

    skip_without_binary()
    plain = answers()
    strong = ("--control-vector-scaled", f"{first}:4", "--control-vector", second)
    steered = answers(*strong)
    only_last = answers(*strong, "--control-vector-layer-range", "2", "2")
    assert len({tuple(plain), tuple(steered), tuple(only_last)}) == 3
    assert answers("--control-vector-scaled", f"{first}:0") == plain
    # Pages on disk belong to the control vectors they were computed with.
    assert [answers(cached=True), answers(*strong, cached=True), answers(*strong, cached=True), answers(cached=True)] == [plain, steered, steered, plain]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--control-vector", "/nowhere.gguf"), 1, "/nowhere.gguf"),
        (("--control-vector", ADAPTERS / "qwen2.gguf"), 1, "is no control vector"),
        (("--control-vector", GOLDEN / "control-vectors/first.gguf", "--control-vector-layer-range", "1", "9"), 1, "the model has the layers 1 to 2"),
        (("--control-vector", GOLDEN / "control-vectors/first.gguf", "--record", "/tmp/never-written"), 1, "--record cannot be combined with --control-vector"),
        (("--control-vector-scaled", "x.gguf"), 2, "FILE:SCALE"),
        (("--control-vector-scaled", "x.gguf:much"), 2, "FILE:SCALE"),
        (("--control-vector-scaled", "x.gguf:nan"), 2, "FILE:SCALE"),
        (("--control-vector-layer-range", "1"), 2, "--control-vector-layer-range"),
        (("--control-vector-layer-range", "0", "2"), 2, "--control-vector-layer-range"),
    ],
)
def test_wrong_control_vectors_are_refused(flags, code, words):
    skip_without_binary()
    refused = quire("serve", "-m", LLAMA, *flags, "--port", "0")
    assert refused.returncode == code and words in refused.stderr, refused.stderr


def test_adapters_belong_to_a_model_of_several(tmp_path):
    base, llama = alone("llama")
    preset = tmp_path / "models.ini"
    preset.write_text(f"[qwen]\nmodel = {GOLDEN / 'models/qwen2'}\nlora = q={ADAPTERS / 'qwen2'}\n[base]\nmodel = {LLAMA}\nlora = [\"one={ADAPTERS / 'llama'}\", \"two={ADAPTERS / 'llama_rslora'}\"]\n")
    server = Server("--models-preset", str(preset), models=[])
    assert ids_of(server) == ["qwen", "q", "base", "one", "two"]
    assert complete(server, "one") == llama and complete(server, "base") == base
    assert complete(server, "q") != complete(server, "qwen")
    assert server.stop()[0] == 0


def test_names_of_adapters_and_models_differ():
    skip_without_binary()
    same = quire("serve", "-m", LLAMA, "--served-model-name", "base", "--lora", f"base={ADAPTERS / 'llama'}", "--port", "0")
    assert same.returncode == 1 and 'an adapter has the name "base"' in same.stderr
    several = quire("serve", "-m", f"a={LLAMA}", "-m", f"b={GOLDEN / 'models/qwen2'}", "--lora", ADAPTERS / "llama")
    assert several.returncode == 2 and "--models-preset" in several.stderr


def test_run_answers_with_its_adapter():
    def run(*flags):
        return quire("run", "-m", GOLDEN / "models-gguf/qwen2.gguf", "--raw", "-p", "x", "-n", 4, "--temperature", 0, *flags)

    refused = run("--lora", "a=1", "--lora", "b=2")
    assert refused.returncode == 2 and "--lora" in refused.stderr
    assert run("--lora", "a=/nowhere").returncode == 1
    assert run("--lora", "=x").returncode == 2
    wrong = run("--lora", ADAPTERS / "qwen2")
    assert wrong.returncode == 1 and "convert_lora_to_gguf.py" in wrong.stderr


@pytest.mark.parametrize("flags", [("--lora", "a=x", "--lora", "a=y"), ("--max-lora-rank", "0"), ("--max-loras", "-1"), ("--lora-memory", "much")])
def test_wrong_flags_are_refused(flags):
    skip_without_binary()
    refused = quire("serve", "-m", LLAMA, *flags)
    assert refused.returncode == 2 and flags[0] in refused.stderr
