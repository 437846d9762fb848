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


def test_no_answer_ends_a_conversation(server):
    """Calls that were cut off or broken come back with every later request."""
    for written in ['{"city": "Os', '{"city": "Os\nlo"}', "{city: Oslo}", "[1]", "Oslo"]:
        call = {**CALL, "function": {"name": "weather", "arguments": written}}
        history = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": None}, *ASK]
        assert f'"arguments":{written}}}\n</tool_call>' in prompt(server, messages=history, tools=TOOLS)
        items = [*ASK, {"type": "function_call", "call_id": "c", "name": "weather", "arguments": written}, {"type": "function_call_output", "call_id": "c", "output": None}]
        blocks = [*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "weather", "input": {"INVALID_JSON": written}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": None}, {"type": "text", "text": "Again."}]}]
        for path, body in [("/v1/chat/completions", {"messages": history, "max_tokens": 1}), ("/v1/responses", {"input": items, "max_output_tokens": 1}),
                           ("/v1/messages", {"messages": blocks, "max_tokens": 1}), ("/api/chat", {"messages": history, "stream": False, "options": {"num_predict": 1}})]:
            status, answer = post(server, path, {"model": "smollm2", **body})
            assert status == 200, (path, written, answer)


def test_a_result_and_the_text_after_it_are_one_message_of_the_user(server):
    text = prompt(server, messages=[*HISTORY, {"role": "user", "content": "And in Rome?"}], tools=TOOLS)
    assert "rain\n</tool_response>\n\nAnd in Rome?<|im_end|>" in text


def test_developers_and_broken_characters_are_in_the_prompt(server):
    messages = '[{"role": "developer", "content": "Never mention prices."}, {"role": "user", "content": "cut \\ud83d here"}]'
    text = prompt(server, messages=json.loads(messages))
    assert "<|im_start|>system\nNever mention prices.<|im_end|>" in text and "cut \ufffd here" in text


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


FORCED = {"model": "smollm2", "temperature": 0, "max_tokens": 200, "parallel_tool_calls": False}
ARGUMENTS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 7},
             "unit": {"enum": ["celsius", "kelvin"]}}, "required": ["city", "days", "unit"], "additionalProperties": False}
FORECAST = {"name": "forecast", "description": "The weather of the next days", "parameters": ARGUMENTS}


def check_forecast(arguments):
    assert arguments.keys() == {"city", "days", "unit"} and 1 <= arguments["days"] <= 7 and arguments["unit"] in ("celsius", "kelvin")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "forecast"}}])
def test_a_forced_call_matches_its_schema(client, choice):
    ask = {"messages": ASK, "tools": [*TOOLS, {"type": "function", "function": FORECAST}] if choice != "required" else [{"type": "function", "function": FORECAST}],
           "tool_choice": choice, **FORCED}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None
    [call] = whole.message.tool_calls
    assert call.function.name == "forecast"
    check_forecast(json.loads(call.function.arguments))
    streamed = ""
    for chunk in client.chat.completions.create(stream=True, **ask):
        for delta in chunk.choices[0].delta.tool_calls or []:
            streamed += delta.function.arguments
    assert streamed == call.function.arguments


def test_forced_calls_of_the_other_apis(client, server):
    tool = {"type": "function", **FORECAST, "strict": True}
    response = client.responses.create(model="smollm2", input="What is the weather in Oslo?", tools=[tool], tool_choice="required", parallel_tool_calls=False,
                                       max_output_tokens=200, temperature=0)
    [call] = [item for item in response.output if item.type == "function_call"]
    check_forecast(json.loads(call.arguments))
    claude = anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0)
    tools = [{"name": "forecast", "input_schema": ARGUMENTS}]
    for choice in [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "forecast", "disable_parallel_tool_use": True}]:
        message = claude.messages.create(model="smollm2", max_tokens=200, messages=ASK, tools=tools, tool_choice=choice, extra_body={"temperature": 0})
        assert message.stop_reason == "tool_use"
        [block] = [block for block in message.content if block.type == "tool_use"]
        check_forecast(block.input)


@pytest.mark.parametrize("parser", ["qwen3_coder", "llama3_json", "pythonic", "mistral", "deepseek_v3", "glm45"])
def test_forced_calls_in_the_syntax_of_other_families(start_server, parser):
    running = start_server("--tool-call-parser", parser)
    loose = ARGUMENTS | {"properties": ARGUMENTS["properties"] | {"city": {"type": "string"}}}  # tags have no quotes, so no lengths
    ask = {"messages": ASK, "tools": [{"type": "function", "function": FORECAST | {"parameters": loose}}], "tool_choice": "required", **FORCED}
    status, answer = post(running, "/v1/chat/completions", ask)
    assert status == 200, answer
    [call] = answer["choices"][0]["message"]["tool_calls"]
    if answer["choices"][0]["finish_reason"] == "tool_calls":  # the model may go on in its city until max_tokens
        check_forecast(json.loads(call["function"]["arguments"]))


def test_an_agent_of_five_turns_with_two_tools(client):
    """Each turn names the tool to call; calls and results go back into the history, as in a real agent."""
    tools = [{"type": "function", "function": FORECAST}, {"type": "function", "function": {"name": "note", "parameters": {
        "type": "object", "properties": {"text": {"type": "string", "maxLength": 40}}, "required": ["text"], "additionalProperties": False}}}]
    messages, called = [*ASK], []
    for turn in range(5):
        choice = {"type": "function", "function": {"name": ["forecast", "note"][turn % 2]}} if turn < 4 else "none"
        answer = client.chat.completions.create(messages=messages, tools=tools, tool_choice=choice, **FORCED).choices[0]
        messages.append(answer.message.model_dump(exclude_none=True))
        for call in answer.message.tool_calls or []:
            called.append(call.function.name)
            json.loads(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "4 degrees" if call.function.name == "forecast" else "noted"})
    assert called == ["forecast", "note", "forecast", "note"]
    assert answer.finish_reason in ("stop", "length") and answer.message.content and not answer.message.tool_calls


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
