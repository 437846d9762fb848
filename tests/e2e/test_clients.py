"""Other people's programs against the real server. They are large: ./dev clients installs and runs them."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import MODEL
from test_server import get, post

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def needs(module):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed: ./dev clients")


def run(*command, timeout=300):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout, env=os.environ | OFFLINE)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The model's tokenizer as a Hugging Face directory, for clients that count or make tokens themselves."""
    folder = tmp_path_factory.mktemp("tokenizer")
    run(sys.executable, "-c", "import sys, transformers\n"
        "transformers.AutoTokenizer.from_pretrained(sys.argv[1], gguf_file=sys.argv[2]).save_pretrained(sys.argv[3])", MODEL.parent, MODEL.name, folder)
    return folder


@needs("litellm")
def test_litellm(server):
    os.environ.update(OFFLINE)
    import litellm

    ask = {"model": "openai/smollm2", "api_base": server.url, "api_key": "none", "messages": [{"role": "user", "content": "Name three colors."}],
           "max_tokens": 24, "temperature": 0}
    whole = litellm.completion(**ask)
    assert whole.usage.completion_tokens <= 24
    streamed = list(litellm.completion(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in streamed if c.choices) == whole.choices[0].message.content
    text = litellm.text_completion(model="text-completion-openai/smollm2", api_base=server.url, api_key="none", prompt="Once upon a time", max_tokens=8, temperature=0)
    assert text.choices[0].text
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**ask | {"temperature": -1})


@needs("langchain_openai")
def test_langchain(server):
    from langchain_openai import ChatOpenAI, OpenAI

    chat = ChatOpenAI(base_url=server.url, api_key="none", model="smollm2", temperature=0, max_tokens=24, seed=1)
    whole = chat.invoke("Name three colors.")
    assert whole.usage_metadata["output_tokens"] <= 24
    assert "".join(chunk.content for chunk in chat.stream("Name three colors.")) == whole.content
    assert [m.content for m in chat.batch(["Name three colors."] * 3)] == [whole.content] * 3
    assert OpenAI(base_url=server.url, api_key="none", model="smollm2", temperature=0, max_tokens=8).invoke("Once upon a time")


@needs("ollama")
def test_ollama(server):
    import ollama

    client = ollama.Client(host=server.base)
    ask = {"model": "smollm2", "messages": [{"role": "user", "content": "Name three colors."}], "options": {"temperature": 0, "num_predict": 24}}
    whole = client.chat(**ask)
    assert whole.done and whole.message.content and whole.eval_count <= 24 and whole.total_duration > whole.eval_duration
    assert "".join(part.message.content for part in client.chat(**ask, stream=True)) == whole.message.content
    asked = {"model": "smollm2", "prompt": "Name three colors.", "options": ask["options"]}
    assert client.generate(**asked).response == whole.message.content
    assert "".join(part.response for part in client.generate(**asked, stream=True)) == whole.message.content

    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        return f"4 degrees in {city}"

    call = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    history = [*ask["messages"], {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_name": "weather", "content": weather("Oslo")}]
    answer = client.chat(**ask | {"messages": history}, tools=[weather])
    assert answer.message.content or answer.message.tool_calls
    assert answer.prompt_eval_count > whole.prompt_eval_count + 50
    schema = {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"], "additionalProperties": False}
    assert json.loads(client.chat(**ask, format=schema).message.content)["color"] in ("red", "blue")

    embedded = client.embed(model="smollm2", input=["a cat", "a dog"])
    assert len(embedded.embeddings) == 2 and list(client.embeddings(model="smollm2", prompt="a cat").embedding) == list(embedded.embeddings[0])
    assert client.list().models[0].model == "smollm2:latest" and client.ps().models[0].model == "smollm2:latest"
    shown = client.show("smollm2")
    assert shown.modelinfo["llama.context_length"] == 2048 and shown.details.quantization_level == "Q4_1"
    for wrong, status in [({"model": "llama3"}, 404), ({"options": {"temperature": -1}}, 400)]:
        with pytest.raises(ollama.ResponseError) as failed:
            client.chat(**ask | wrong)
        assert failed.value.status_code == status and not failed.value.error.startswith("{")


def lm_eval(server, tmp_path, task, rows, *model_args):
    """The results of one task on rows of our own."""
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    task = {"task": "quire_local", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.json")}}, "test_split": "test"} | task
    (tmp_path / "quire_local.yaml").write_text(json.dumps(task))  # JSON is YAML
    arguments = ",".join(["model=smollm2", f"base_url={server.url}/completions", "num_concurrent=2", "max_retries=1", "max_length=1024", *model_args])
    run(sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments, "--tasks", "quire_local", "--include_path", tmp_path,
        "--output_path", tmp_path / "out")
    report = next((tmp_path / "out").rglob("results_*.json"))
    return json.loads(report.read_text())["results"]["quire_local"]


@needs("lm_eval")
def test_lm_eval_generates(server, tmp_path):
    rows = [{"q": "The capital of France is", "a": "Paris"}, {"q": "The opposite of hot is", "a": "zebra"}]
    task = {"output_type": "generate_until", "doc_to_text": "{{q}}", "doc_to_target": "{{a}}",
            "generation_kwargs": {"until": ["\n", ".", ","], "max_gen_toks": 6, "temperature": 0},
            "filter_list": [{"name": "strip", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}], "metric_list": [{"metric": "exact_match"}]}
    result = lm_eval(server, tmp_path, task, rows, "tokenizer_backend=None", "tokenized_requests=False")
    assert result["exact_match,strip"] == 0.5


@needs("lm_eval")
@needs("gguf")
def test_lm_eval_scores_choices(server, tokenizer, tmp_path):
    rows = [{"q": "The capital of France is", "choices": ["Paris", "a banana"], "gold": 0}, {"q": "Water freezes into", "choices": ["courage", "ice"], "gold": 1},
            {"q": "Two and two make", "choices": ["four", "purple"], "gold": 1}]  # the last one's gold is wrong
    task = {"output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_choice": "{{choices}}", "doc_to_target": "gold", "metric_list": [{"metric": "acc"}]}
    result = lm_eval(server, tmp_path, task, rows, "tokenizer_backend=huggingface", f"tokenizer={tokenizer}")
    assert result["acc,none"] == pytest.approx(2 / 3)


@needs("guidellm")
@needs("gguf")
def test_guidellm(server, tokenizer, tmp_path):
    report = tmp_path / "report.json"
    run(pathlib.Path(sys.executable).with_name("guidellm"), "run", "--backend", f"kind=openai_http,target={server.base},model=smollm2",
        "--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6", "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
        "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16", "--output", f"kind=json,path={report}", "--disable-console")
    totals = json.loads(report.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    assert totals["successful"] == 6 and totals["errored"] == 0


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed: apt-get install prometheus")
def test_promtool(start_server):
    running = start_server("--metrics-prefix", "quire_")  # promtool wants no colon in names; vLLM's have one
    post(running, "/v1/completions", {"prompt": "a", "max_tokens": 3})
    checked = subprocess.run(["promtool", "check", "metrics"], input=get(running, "/metrics")[1], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
