"""Whole sessions of coding agents, with requests rebuilt from what Claude Code and Codex CLI send, and single requests of other clients.

The model is small: what it says is not tested. Calls are forced on some turns, so that the histories have some."""

import json
import uuid

import httpx
import pytest

from conftest import Server, served, skip_without_binary_and_model

PAGE = 16  # tokens of the prefix cache's unit
FLAGS = ("--max-model-len", "8192", "--served-model-name", "claude-*", "gpt-*")


@pytest.fixture(scope="module")
def agent_server():
    with served(*FLAGS) as running:
        yield running


def events(response):
    """The data of a stream's events."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def assert_grows(turns):
    """Each turn finds the previous turn's prompt in the cache."""
    for turn, (prompt, cached) in enumerate(turns, 1):
        print(f"turn {turn}: {cached} of {prompt} prompt tokens cached")
    for (prompt, _), (_, cached) in zip(turns, turns[1:]):
        assert cached > prompt - 3 * PAGE


# ---- Claude Code ----

FILE_TOOLS = {"Read": "file_path", "Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path", "Glob": "pattern", "Grep": "pattern"}
OTHER_TOOLS = {"Bash": "command", "BashOutput": "bash_id", "KillShell": "shell_id", "WebFetch": "url", "Task": "prompt", "TodoWrite": "todos",
               "Skill": "skill", "SlashCommand": "command", "ExitPlanMode": "plan"}


def claude_tool(name, argument):
    return {"name": name, "description": f"The tool {name} of the agent. Use it whenever you would otherwise ask the user to do the same by hand.",
            "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": False,
                             "properties": {argument: {"type": "string", "maxLength": 20, "description": f"The {argument} that {name} works on"},
                                            "timeout": {"type": "number"}}, "required": [argument]}}


def claude_request(messages, forced):
    billing = f"x-anthropic-billing-header: cc_version=2.1.15.{uuid.uuid4().hex[:3]}; cc_entrypoint=cli; cch={uuid.uuid4().hex[:5]};"
    ephemeral = {"type": "ephemeral", "ttl": "1h"}
    body = {
        "model": "claude-sonnet-4-5-20250929",
        "messages": messages,
        "system": [{"type": "text", "text": billing},
                   {"type": "text", "text": "You are a coding agent, started from a command line.", "cache_control": ephemeral},
                   {"type": "text", "text": "You help with software. Be concise. Follow the conventions of the project. " * 8, "cache_control": ephemeral}],
        "tools": [*(claude_tool(name, argument) for name, argument in {**FILE_TOOLS, **OTHER_TOOLS}.items()),
                  {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        "metadata": {"user_id": f"user_{'0' * 64}_account__session_{uuid.uuid4()}"},
        "max_tokens": 48,
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "temperature": 1,
        "stream": True,
    }
    if forced:
        body["tool_choice"] = {"type": "tool", "name": forced}
    return body


def claude_turn(server, messages, forced):
    """The blocks of the answer, put together from its events, the stop reason, and prompt and cached tokens."""
    headers = {"anthropic-version": "2023-06-01", "x-app": "cli", "authorization": "Bearer none", "user-agent": "claude-cli/2.1.15 (external, cli)",
               "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"}
    blocks, usage, stop = [], {}, None
    with httpx.stream("POST", server.base + "/v1/messages?beta=true", json=claude_request(messages, forced), headers=headers, timeout=120) as response:
        assert response.status_code == 200, response.read()
        for event in events(response):
            if event["type"] == "message_start":
                assert event["message"]["model"] == "claude-sonnet-4-5-20250929"
                usage.update(event["message"]["usage"])
            elif event["type"] == "content_block_start":
                blocks.append(event["content_block"] | {"json": ""})
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                for name, value in delta.items():
                    if name in ("text", "thinking", "signature"):
                        blocks[-1][name] += value
                blocks[-1]["json"] += delta.get("partial_json", "")
            elif event["type"] == "message_delta":
                stop = event["delta"]["stop_reason"]
                usage.update(event["usage"])
    for block in blocks:
        written = block.pop("json")
        if block["type"] == "tool_use":
            try:
                block["input"] = json.loads(written)
            except ValueError:  # cut off
                block["input"] = {}
    return blocks, stop, usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]


def test_a_session_of_claude_code(agent_server):
    reminder = {"type": "text", "text": "<system-reminder>\nThe project's notes: use tabs.\n</system-reminder>"}
    messages = [{"role": "user", "content": [reminder, {"type": "text", "text": "Find out why the build fails, and mend it."}]}]
    turns = []
    for turn in range(10):
        forced = [None, "Read", "Bash"][turn % 3]
        blocks, stop, prompt, cached = claude_turn(agent_server, messages, forced)
        turns.append((prompt, cached))
        calls = [block for block in blocks if block["type"] == "tool_use"]
        assert stop in ("tool_use", "end_turn", "max_tokens") and blocks
        if forced:
            assert calls and calls[0]["name"] == forced
        messages.append({"role": "assistant", "content": blocks})
        answer = [{"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "make: *** [all] Error 2"}]} for call in calls]
        answer.append({"type": "text", "text": f"Go on with step {turn + 2}.", "cache_control": {"type": "ephemeral"}})
        messages.append({"role": "user", "content": answer})
    assert_grows(turns)

    counted = claude_request(messages, None)
    counted = {name: counted[name] for name in ("model", "messages", "system", "tools", "thinking")}
    tokens = [httpx.post(agent_server.base + "/v1/messages/count_tokens?beta=true", json=counted | {"system": claude_request([], None)["system"]},
                         timeout=60).json()["input_tokens"] for _ in range(2)]
    assert tokens[0] == tokens[1] > turns[-1][0]


# ---- Codex CLI ----


def codex_function(name, properties):
    return {"type": "function", "name": name, "description": f"Runs {name} for the agent", "strict": False,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1], "additionalProperties": False}}


CODEX_TOOLS = [
    codex_function("shell_command", {"command": {"type": "string", "maxLength": 20}, "workdir": {"type": "string"}, "timeout_ms": {"type": "number"}}),
    codex_function("update_plan", {"plan": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 10}}}),
    codex_function("view_image", {"path": {"type": "string"}}),
    {"type": "custom", "name": "apply_patch", "description": "Edits files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}},
    {"type": "web_search", "external_web_access": False},
    {"type": "namespace", "name": "mcp__notes", "description": "Notes", "tools": [codex_function("find", {"words": {"type": "string"}})]},
]


def codex_request(items, session, forced):
    return {
        "model": "gpt-5-codex", "instructions": "You are a coding agent in a terminal. Be precise, safe and helpful. " * 8, "input": items,
        "tools": CODEX_TOOLS, "tool_choice": {"type": "function", "name": forced} if forced else "auto", "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": session, "text": {"verbosity": "medium"}, "client_metadata": {"x-codex-installation-id": session},
        "max_output_tokens": 96,  # Codex sends no limit
    }


def codex_turn(server, items, session, forced):
    """The items of the answer, and prompt and cached tokens."""
    headers = {"accept": "text/event-stream", "originator": "codex_cli_rs", "session_id": session, "openai-beta": "responses=experimental"}
    request, done, last = codex_request(items, session, forced), [], None
    with httpx.stream("POST", server.url + "/responses", json=request, headers=headers, timeout=120) as response:
        assert response.status_code == 200, response.read()
        for event in events(response):
            if event["type"] == "response.output_item.done":
                done.append(event["item"])
            last = event
    assert last["type"] in ("response.completed", "response.incomplete")
    whole = last["response"]
    assert whole["output"] == done and whole["model"] == "gpt-5-codex"
    for repeated in ("instructions", "tools", "tool_choice", "reasoning", "prompt_cache_key", "parallel_tool_calls", "max_output_tokens"):
        assert whole[repeated] == request[repeated]
    assert whole["text"]["verbosity"] == "medium"
    return done, whole["usage"]["input_tokens"], whole["usage"]["input_tokens_details"]["cached_tokens"]


def test_a_session_of_codex(agent_server):
    models = httpx.get(agent_server.url + "/models?client_version=0.98.0", timeout=60).json()
    assert models["models"][0]["slug"] == "smollm2" and models["models"][0]["context_window"] == 8192

    def says(role, text):
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    items = [says("developer", "<permissions>You may write in this folder.</permissions>"), says("user", "<environment_context>bash</environment_context>"),
             says("user", "Find out why the build fails, and mend it.")]
    session, turns = str(uuid.uuid4()), []
    for turn in range(8):
        forced = [None, "shell_command", "update_plan", "mcp__notes__find"][turn % 4]
        answer, prompt, cached = codex_turn(agent_server, items, session, forced)
        turns.append((prompt, cached))
        calls = [item for item in answer if item["type"] == "function_call"]
        assert not forced or [call.get("namespace", "") + "__" * ("namespace" in call) + call["name"] for call in calls] == [forced]
        whole = [item for item in answer if item["status"] == "completed"]  # Codex drops what was cut off
        items += whole
        items += [{"type": "function_call_output", "call_id": item["call_id"], "output": "Exit code: 2\nOutput:\nmake: *** Error 2"}
                  for item in whole if item["type"] == "function_call"]
        if turn == 3:  # what a session with another provider leaves behind
            items += [{"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAAA"},
                      {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "make error 2"}},
                      {"type": "custom_tool_call", "call_id": "c9", "name": "apply_patch", "input": "*** Begin Patch", "status": "completed"},
                      {"type": "custom_tool_call_output", "call_id": "c9", "output": "Success"}]
        items.append(says("user", f"Go on with step {turn + 2}."))
    assert_grows(turns)
    counted = {name: value for name, value in codex_request(items, session, None).items() if name in ("model", "input", "instructions", "tools")}
    assert httpx.post(agent_server.url + "/responses/input_tokens", json=counted, timeout=60).json()["input_tokens"] > turns[-1][0]


def test_what_is_left_out_is_logged_once():
    skip_without_binary_and_model()
    server = Server(*FLAGS)
    for _ in range(2):
        assert httpx.post(server.base + "/v1/messages", json=claude_request([{"role": "user", "content": "Hi"}], None) | {"max_tokens": 1},
                          timeout=60).status_code == 200
        items = [{"type": "web_search_call", "action": {}}, {"role": "user", "content": "Hi"}]
        assert httpx.post(server.url + "/responses", json=codex_request(items, "s", None) | {"max_output_tokens": 1}, timeout=60).status_code == 200
    code, log = server.stop()
    assert code == 0
    for part in ("x-anthropic-billing-header", '"web_search_20250305"', 'tools of type "custom"', '"web_search_call"'):
        assert sum(part in line for line in log.splitlines()) == 1, log


# ---- single requests ----

ASK = [{"role": "user", "content": "The weather in Oslo?"}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}
LONG = "tree " * 3000


def post(server, path, body):
    response = httpx.post(server.base + path, json={"model": "smollm2", **body}, timeout=60)
    return response.status_code, response.json()


@pytest.mark.parametrize("strict", [False, None])
def test_forced_calls_follow_the_schema(server, strict):
    chat = {"messages": ASK, "temperature": 0, "max_tokens": 60, "tool_choice": "required", "parallel_tool_calls": False,
            "tools": [{"type": "function", "function": {"name": "weather", "strict": strict, "parameters": CITY}}, {"type": "web_search"}]}
    status, answer = post(server, "/v1/chat/completions", chat)
    assert status == 200 and json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])["city"] in ("Oslo", "Rome")
    tool = {"type": "function", "name": "weather", "strict": strict, "parameters": CITY}
    status, answer = post(server, "/v1/responses", {"input": ASK, "temperature": 0, "max_output_tokens": 60, "tool_choice": "required", "tools": [tool],
                                                        "parallel_tool_calls": False})
    assert status == 200 and json.loads(answer["output"][-1]["arguments"])["city"] in ("Oslo", "Rome")


def test_too_long_prompts_are_told_in_known_words(server):
    user = [{"role": "user", "content": LONG}]
    for path, body in {"/v1/chat/completions": {"messages": user}, "/v1/completions": {"prompt": LONG}, "/v1/responses": {"input": LONG}}.items():
        for stream in (False, True):
            status, answer = post(server, path, {**body, "stream": stream})
            assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
            assert "This model's maximum context length is 2048 tokens" in answer["error"]["message"]
    status, answer = post(server, "/v1/messages", {"messages": user, "max_tokens": 100})
    words = answer["error"]["message"].split()
    assert status == 400 and answer["error"]["message"] == f"prompt is too long: {words[4]} tokens > 2048 maximum" and int(words[4]) > 3000


@pytest.mark.parametrize("path,body", [
    ("/v1/chat/completions", {"messages": ASK, "max_tokens": 2, "logit_bias": [], "metadata": [], "tools": [
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": []}}}]}),
    ("/v1/messages", {"messages": ASK, "max_tokens": 2, "metadata": [], "tools": [{"name": "now", "input_schema": []}]}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "stream_options": [], "tools": [{"type": "function", "name": "now", "parameters": []}]}),
])
def test_empty_lists_of_php_are_empty_objects(server, path, body):
    status, answer = post(server, path, body)
    assert status == 200, answer
