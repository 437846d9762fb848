"""quire grammar: what is honoured, refused and accepted, byte by byte and token by token."""

import json

import pytest

from conftest import MODEL, needs_model, quire

SCHEMA = '{"type": "array", "items": {"type": "integer"}, "minItems": 1}'


def judged(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_schema_and_its_instances_come_on_standard_input():
    done = quire("grammar", "--schema", "-", "--check-jsonl", "-", input=f"{SCHEMA}\n[1, 2]\n[]\n")
    assert judged(done) == [{"accepted": True}, {"accepted": False}]


def test_a_refused_order_or_spelling_is_named():
    names = [f"p{i}" for i in range(120)]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "additionalProperties": False}
    lines = ['{"p1": 1, "p0": 2}', '{"p0": 1}', '{"p0":  1}', '{"p0": "x"}', "{"]
    done = quire("grammar", "--schema", "-", "--check-jsonl", "-", input="\n".join([json.dumps(schema), *lines]) + "\n")
    order, right, blanks, wrong, broken = judged(done)
    assert not order["accepted"] and order["reason"] == 'the order of properties; this is accepted: {"p0": 2, "p1": 1}'
    assert right == {"accepted": True} and wrong == {"accepted": False}
    assert "blanks" in blanks["reason"] and not broken["accepted"] and "reason" in broken


def test_small_objects_have_any_order_and_a_check_takes_fractions_of_zero():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {}}, "required": ["c"]}
    lines = ['{"c": 1, "a": 5.0}', '{"b": 1, "a": 2, "c": 3}', '{"a": 5.5, "c": 1}']
    done = quire("grammar", "--schema", "-", "--check-jsonl", "-", input="\n".join([json.dumps(schema), *lines]) + "\n")
    assert [line["accepted"] for line in judged(done)] == [True, True, False]


@needs_model
def test_a_model_judges_token_by_token(tmp_path):
    (tmp_path / "schema.json").write_text(SCHEMA)
    (tmp_path / "instances.jsonl").write_text('[1, 2]\n["a"]\n[10,20]\n')
    done = quire("grammar", "--schema", tmp_path / "schema.json", "--check-jsonl", tmp_path / "instances.jsonl", "-m", MODEL, "--stats")
    *answers, stats = judged(done)
    assert answers == [{"accepted": True}, {"accepted": False}, {"accepted": True}]
    assert stats["vocabulary"] > 40_000 and stats["mask_us"]["count"] > 0


def test_texts_of_a_regex_and_a_grammar_are_json_strings(tmp_path):
    (tmp_path / "g.gbnf").write_text('root ::= "a" [0-9]+\n')
    for source in (["--regex", "a\\d+"], ["--gbnf", tmp_path / "g.gbnf"]):
        done = quire("grammar", *source, "--check-jsonl", "-", input='"a1"\n"a"\n')
        assert judged(done) == [{"accepted": True}, {"accepted": False}]


@pytest.mark.parametrize(
    "schema, message",
    [
        ('{"properties": {"site": {"type": "string", "format": "iri"}}}', 'format at #/properties/site: "iri" is not supported'),
        ("{", "schema:1:2: "),
    ],
)
def test_a_refusal_names_keyword_and_place(schema, message):
    done = quire("grammar", "--schema", "-", input=schema)
    assert done.returncode == 1 and message in done.stderr


def test_a_bad_command_line_is_an_error_of_its_own():
    assert quire("grammar").returncode == 2
    assert quire("grammar", "--regex", "a", "--schema", "x").returncode == 2
