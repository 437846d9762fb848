#!/usr/bin/env python3
"""Records what transformers renders from the templates in DATA_DIR/templates: make_templates.py DATA_DIR

Writes DATA_DIR/templates/NAME.json. Made with transformers 5.19.0: later versions add keys to messages. The clock of strftime_now stands at NOW.
"""
import copy
import datetime
import json
import sys
from pathlib import Path

import jinja2
import transformers
import transformers.utils.chat_template_utils as rendering

NOW = datetime.datetime(2026, 11, 21, 12, 34, 56)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


rendering.datetime = Clock

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the current weather in a given location.", "parameters": {
        "type": "object", "properties": {"location": {"type": "string", "description": "City and country, e.g. \"Paris, FR\""}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, "required": ["location"]}}},
    {"type": "function", "function": {"name": "add_numbers", "description": "Adds numbers <a> & 'b' — exactly.", "parameters": {
        "type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}}, "options": {"type": "object", "properties": {"round": {"type": "boolean", "default": False}, "digits": {"type": "integer", "minimum": 0}}}}, "required": ["numbers"]}}}]
WHERE = {"location": "Paris, FR", "unit": "celsius"}


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(arguments, name="get_weather", id="call00001"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def result(text, name="get_weather", id="call00001"):
    return {"role": "tool", "tool_call_id": id, "name": name, "content": text}


START = {"add_generation_prompt": True}
CASES = [
    ("user", [user("Hello, who are you?")], None, START),
    ("user, no generation prompt", [user("Hello, who are you?")], None, {"add_generation_prompt": False}),
    ("system and user", [system("You are a terse assistant."), user("Name three colours.")], None, START),
    ("several turns", [system("Be kind."), user("Hi"), assistant("Hello! How can I help?"), user("Tell me a joke.\nA short one."), assistant("Why did the chicken cross the road?"), user("Why?")], None, START),
    ("ends with the assistant", [user("1+1?"), assistant("2"), user("2+2?"), assistant("4")], None, {"add_generation_prompt": False}),
    ("empty contents", [system(""), user(""), assistant(""), user("x")], None, START),
    ("unicode", [system("Réponds en français — s'il te plaît."), user("你好 👨‍👩‍👧‍👦 नमस्ते \u200b\u0301 \"quotes\" <b>&amp;</b> {{ not jinja }} {% raw %}"), assistant("Voilà !"), user("مرحبا")], None, START),
    ("white space", [system("  padded system \n"), user("\n  leading and trailing \t\n"), assistant("  answer  \n\n"), user(" again ")], None, START),
    ("tools", [system("Use tools when they help."), user("What's the weather in Paris?")], TOOLS, START),
    ("a call and its result", [user("Weather in Paris?"), assistant("", tool_calls=[call(WHERE)]), result("{\"temp\": 21.5}"), assistant("It is 21.5 degrees."), user("Thanks")], TOOLS, START),
    ("a call with null content and arguments as a string", [user("Weather in Paris?"), assistant(None, tool_calls=[call(json.dumps(WHERE))]), result("21.5")], TOOLS, START),
    ("two calls", [user("Weather in Paris, and 1+2.5?"), assistant("Let me look.", tool_calls=[call(WHERE), call({"numbers": [1, 2.5]}, "add_numbers", "call00002")]), result("\"sunny\""), result("3.5", "add_numbers", "call00002")], TOOLS, START),
    ("thinking on", [user("Is 91 prime?")], None, {**START, "enable_thinking": True}),
    ("thinking off", [user("Is 91 prime?")], None, {**START, "enable_thinking": False}),
    ("past reasoning in the text", [user("Is 91 prime?"), assistant("<think>\n7 * 13 = 91\n</think>\n\nNo."), user("And 97?"), assistant("<think>\nnot by 2, 3, 5, 7\n</think>\n\nYes.")], None, {"add_generation_prompt": False}),
    ("past reasoning_content", [user("Is 91 prime?"), assistant("No.", reasoning_content="7 * 13 = 91"), user("And 97?")], None, START),
    ("content parts", [user([{"type": "text", "text": "Describe "}, {"type": "image"}, {"type": "text", "text": "this."}])], None, START),
    ("two users in a row", [user("a"), user("b")], None, START),
    ("assistant first", [assistant("Welcome."), user("hi")], None, START),
    ("unknown role", [user("a"), {"role": "narrator", "content": "b"}], None, START),
    ("empty list of tools", [user("Hello")], [], START),
    ("variables of templates", [system("Be kind."), user("Weather in Paris?")], None, {**START, "date_string": "1 Jan 2000", "reasoning_effort": "high", "documents": [{"title": "Doc", "text": "Line\nline"}, {"text": "Body"}]}),
    ("continued", [user("Count to five."), assistant("One, two,")], None, {"add_generation_prompt": False, "continue_final_message": True}),
    ("continued, padded", [user("Count to five."), assistant("  One, two, ")], None, {"add_generation_prompt": False, "continue_final_message": True}),
]


def main():
    folder = Path(sys.argv[1]) / "templates"
    for path in sorted(folder.glob("*.jinja")):
        source, rows = path.read_text(), []
        for name, messages, tools, kwargs in CASES:
            row = {"name": name, "messages": messages, "tools": tools, "kwargs": kwargs}
            try:
                row["expected"] = rendering.render_jinja_template([copy.deepcopy(messages)], tools=copy.deepcopy(tools), chat_template=source, **{**SPECIAL, **kwargs})[0][0]
            except Exception as error:
                if "continue_final_message is set" in str(error):  # a check of transformers', not of the template
                    continue
                row["error"], row["error_type"] = str(error), type(error).__name__
            rows.append(row)
        about = {"template": path.name, "special_tokens": SPECIAL, "now": NOW.isoformat(), "jinja2": jinja2.__version__, "transformers": transformers.__version__}
        path.with_suffix(".json").write_text(json.dumps({**about, "cases": rows}, ensure_ascii=False, indent=1) + "\n")
        print(f"{path.name}: {len(rows)} cases, errors: {[(r['name'], r['error'][:60]) for r in rows if 'error' in r]}")


if __name__ == "__main__":
    main()
