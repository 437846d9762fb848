"""Structured output with the real model, as clients ask for it."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import openai
import pydantic
import pytest
from test_server import post

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}


def ask(server, **fields):
    body = {"messages": [{"role": "user", "content": "Describe a person as JSON."}], "max_tokens": 200, **fields}
    status, answer = post(server, "/v1/chat/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


def test_answers_follow_their_schema_alone_and_together(server):
    def person(seed):
        return ask(server, response_format=FORMAT, seed=seed, temperature=1.2)

    alone = [person(seed) for seed in range(6)]
    for text in alone:
        made = json.loads(text)
        assert set(made) == {"name", "age", "tags"} and 0 <= made["age"] <= 150 and 1 <= len(made["tags"]) <= 3
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(person, range(6))) == alone


@pytest.mark.parametrize("penalties", [{}, {"repetition_penalty": 1.5}, {"presence_penalty": 2, "frequency_penalty": 2}, {"dry_multiplier": 4}])
@pytest.mark.parametrize("path, answer", [("/v1/chat/completions", "message"), ("/v1/completions", "text")])
def test_few_blanks_and_whole_numbers(server, path, answer, penalties):
    items = {"type": "object", "properties": {"yes": {"type": "boolean"}, "count": {"type": "integer", "maximum": 99}},
             "required": ["yes", "count"], "additionalProperties": False}
    schema = {"type": "array", "items": items, "minItems": 3, "maxItems": 3}
    body = {"max_tokens": 200, "temperature": 0, "guided_json": schema, **penalties}
    prompt = {"messages": [{"role": "user", "content": "Hi"}]} if answer == "message" else {"prompt": "Hi"}
    status, made = post(server, path, {**body, **prompt})
    assert status == 200, made
    text = made["choices"][0]["message"]["content"] if answer == "message" else made["choices"][0]["text"]
    assert all(isinstance(item["count"], int) for item in json.loads(text)), text
    assert not re.search(r"[ \t]{9}|\n\s*\n|\d[.eE]", text) and len(re.findall(r"\s", text)) < 0.7 * len(text), text


def test_a_grammar_that_needs_too_much_is_a_400(server):
    chain = "".join(f'r{i} ::= r{i + 1} | "a" r{i + 1} "b"\n' for i in range(2000))
    wide = "root ::= " + " | ".join(f'"{i}" root "x"' for i in range(20000)) + ' | "y"'
    for grammar in [f'root ::= r0\n{chain}r2000 ::= "c"\n', wide]:
        status, body = post(server, "/v1/completions", {"prompt": "Hi", "grammar": grammar, "max_tokens": 20})
        assert status in (200, 400), body
        if status == 400:
            assert body["error"]["code"] == "structured_output_refused" and "too many" in body["error"]["message"], body


def test_other_kinds(server):
    assert ask(server, guided_choice=["yes", "no"]) in ("yes", "no")
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}", ask(server, structured_outputs={"regex": "[0-9]{4}-[0-9]{2}"}))
    assert ask(server, grammar='root ::= "a" [b-d]+ "e"', temperature=2, seed=1).startswith("a")


def test_any_object(server):
    body = {"messages": [{"role": "user", "content": "Describe a person as JSON."}], "max_tokens": 300, "n": 4, "seed": 3}
    status, answer = post(server, "/v1/chat/completions", {**body, "response_format": {"type": "json_object"}})
    assert status == 200, answer
    # A sampled list may go on until max_tokens.
    whole = [choice["message"]["content"] for choice in answer["choices"] if choice["finish_reason"] == "stop"]
    assert whole and all(isinstance(json.loads(text), dict) for text in whole)


def test_openais_parse(server):
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=150)

    client = openai.OpenAI(base_url=server.url, api_key="none")
    messages = [{"role": "user", "content": "Describe a person."}]
    parsed = client.chat.completions.parse(model="smollm2", messages=messages, response_format=Person, max_tokens=150)
    assert isinstance(parsed.choices[0].message.parsed, Person)
    answer = client.responses.parse(model="smollm2", input="Describe a person.", text_format=Person, max_output_tokens=150)
    assert isinstance(answer.output_parsed, Person)


@pytest.mark.parametrize("schema, keyword", [({"uniqueItems": True}, "uniqueItems"), ({"$ref": "https://a/b"}, "$ref"),
                                             ({"type": "string", "format": "iri"}, "format")])
def test_what_cannot_be_honoured_is_refused(server, schema, keyword):
    status, body = post(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "guided_json": schema})
    assert status == 400 and keyword in body["error"]["message"] and body["error"]["param"] == "guided_json"
