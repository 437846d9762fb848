"""Frameworks that ask for tools and structured answers, against the real server. ./dev clients installs and runs them.

The model is small: what it says is not tested, only that it has the form that the framework asked for.
"""

import json
import os
import pathlib
import sys
from typing import Literal

import pytest
from test_clients import OFFLINE, needs, run

ASK = "Ada is 36 years old. The weather in Oslo?"


@pytest.fixture(scope="module")
def person():
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):
        """A person"""

        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=150)

    return Person


def weather(city: Literal["Oslo", "Rome"], days: Literal[1, 2, 3]) -> str:
    """The weather of a city in the next days"""
    return f"{days} days of rain in {city}"


@pytest.fixture
def chat(server):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(base_url=server.url, api_key="none", model="smollm2", temperature=0, max_tokens=200, seed=1)


@needs("langchain_openai")
@pytest.mark.parametrize("choice", ["required", "any", "weather"])
def test_langchain_binds_tools(chat, choice):
    bound = chat.bind_tools([weather], tool_choice=choice, parallel_tool_calls=False)
    [call] = bound.invoke(ASK).tool_calls
    assert call["name"] == "weather" and call["args"]["city"] in ("Oslo", "Rome") and call["args"]["days"] in (1, 2, 3)
    streamed = None
    for chunk in bound.stream(ASK):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed.tool_calls[0]["args"] == call["args"]
    assert chat.bind_tools([weather], strict=True).invoke(ASK)


@needs("langchain_openai")
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structures_answers(chat, person, method):
    found = chat.with_structured_output(person, method=method).invoke(ASK)
    assert isinstance(found, person)


@needs("langchain_openai")
def test_langchain_answers_in_json(chat):
    schema = {"title": "thing", "description": "Any", "type": "object", "properties": {}}
    found = chat.with_structured_output(schema, method="json_mode", include_raw=True).invoke(ASK + " Answer in JSON.")
    raw = found["raw"]
    if raw.response_metadata["finish_reason"] == "stop":  # the model may go on to its limit
        assert isinstance(json.loads(raw.content), dict)


@needs("litellm")
def test_litellm_sends_tools_and_formats(server, person):
    os.environ.update(OFFLINE)
    import litellm

    ask = {"model": "openai/smollm2", "api_base": server.url, "api_key": "none", "messages": [{"role": "user", "content": ASK}], "max_tokens": 200, "temperature": 0}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}}}]
    choice = litellm.completion(**ask, tools=tools, tool_choice="required", parallel_tool_calls=False).choices[0]
    [call] = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and json.loads(call.function.arguments).keys() == {"city"}
    answer = litellm.completion(**ask, response_format=person).choices[0].message.content
    person.model_validate_json(answer)


@needs("instructor")
@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
def test_instructor(client, person, mode):
    import instructor

    patched = instructor.from_openai(client, mode=instructor.Mode[mode])
    found = patched.create(model="smollm2", response_model=person, messages=[{"role": "user", "content": ASK}], max_tokens=200, temperature=0, max_retries=0)
    assert isinstance(found, person)


@needs("llm")
def test_llm_with_a_schema(server, tmp_path, monkeypatch):
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: quire\n  model_name: smollm2\n  api_base: {server.url}\n  supports_schema: true\n  supports_tools: true\n")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    program = pathlib.Path(sys.executable).with_name("llm")
    answer = run(program, "-m", "quire", "--key", "none", "--no-stream", "-o", "temperature", "0", "-o", "max_tokens", "200",
                 "--schema", json.dumps({"type": "object", "properties": {"age": {"type": "integer", "maximum": 150, "minimum": 0}}, "required": ["age"],
                                         "additionalProperties": False}), ASK)
    assert json.loads(answer).keys() == {"age"}
