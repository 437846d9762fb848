"""Tools through the clients of OpenAI and Anthropic. The model is small and seldom calls, so what it answers is not tested here: tests/unit/server does
that with a scripted model."""

import json

import anthropic
import pytest
from test_server import get, post

WEATHER = {"name": "weather", "description": "The weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": "Oslo"})}}
HISTORY = [*ASK, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees, rain"}]
SMALL = {"model": "smollm2", "max_tokens": 24, "temperature": 0}


def prompt(server, **fields):
    status, answer = post(server, "/tokenize", {"return_token_strs": False, **fields})
    assert status == 200, answer
    return post(server, "/detokenize", {"tokens": answer["tokens"]})[1]["prompt"]


def test_the_prompt_describes_the_tools(server):
    with_tools = prompt(server, messages=ASK, tools=TOOLS)
    assert "<tools>" in with_tools and '"name":"weather"' in with_tools and "What is the weather in Oslo?" in with_tools
    assert "<tools>" not in prompt(server, messages=ASK)


def test_the_prompt_shows_calls_and_results(server):
    text = prompt(server, messages=HISTORY, tools=TOOLS)
    assert '<tool_call>\n{"name":"weather","arguments":{"city":"Oslo"}}\n</tool_call>' in text
    assert "<tool_response>\n4 degrees, rain\n</tool_response>" in text


def test_openais_client_sends_tools(client):
    whole = client.chat.completions.create(messages=HISTORY, tools=TOOLS, tool_choice="auto", **SMALL).choices[0].message
    assert whole.content or whole.tool_calls
    chunks = list(client.chat.completions.create(messages=HISTORY, tools=TOOLS, stream=True, **SMALL))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks).rstrip() == (whole.content or "").rstrip()
    tools = [{"type": "function", **WEATHER}]
    items = [{"role": "user", "content": ASK[0]["content"]}, {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city": "Oslo"}'},
             {"type": "function_call_output", "call_id": "c", "output": "4 degrees, rain"}]
    response = client.responses.create(model="smollm2", input=items, tools=tools, max_output_tokens=24, temperature=0)
    assert response.output and response.tools[0].name == "weather"


def test_anthropics_client_sends_tools(server):
    claude = anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0)
    tools = [{"name": "weather", "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}]
    messages = [*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "4 degrees, rain"}]}]
    message = claude.messages.create(model="smollm2", max_tokens=24, messages=messages, tools=tools, extra_body={"temperature": 0})
    assert message.content and message.stop_reason in ("end_turn", "max_tokens", "tool_use")
    with claude.messages.stream(model="smollm2", max_tokens=24, messages=messages, tools=tools) as stream:
        assert stream.get_final_message().content is not None
    assert claude.messages.count_tokens(model="smollm2", messages=messages, tools=tools).input_tokens > 100


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_forced_call_is_refused(server, choice):
    status, body = post(server, "/v1/chat/completions", {"messages": ASK, "tools": TOOLS, "tool_choice": choice})
    assert status == 400 and body["error"]["param"] == "tool_choice"


def test_the_document_knows_tools(server):
    schemas = json.loads(get(server, "/openapi.json")[1])["components"]["schemas"]
    assert {"Tool", "ResponseTool", "MessageTool", "ToolChoice"} <= schemas.keys()


def test_special_tokens_are_read_before_they_are_left_out(server):
    """The engine frames added tokens for the parsers; clients never see the frames."""
    token = post(server, "/tokenize", {"prompt": "<|im_start|>", "add_special_tokens": False})[1]["tokens"]
    assert len(token) == 1
    ask = {"messages": ASK, "tools": TOOLS, "max_tokens": 2, "allowed_token_ids": token, "ignore_eos": True}
    for skip, text in [(True, ""), (False, "<|im_start|>" * 2)]:
        status, answer = post(server, "/v1/chat/completions", ask | {"skip_special_tokens": skip})
        assert status == 200 and answer["choices"][0]["message"]["content"] == text
