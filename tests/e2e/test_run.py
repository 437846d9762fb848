"""quire run, used by a person and by a script: the real program, the real model."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

from conftest import MODEL, QUIRE, needs_model, quire

pytestmark = pytest.mark.skipif(not QUIRE.exists(), reason=f"no binary at {QUIRE}: ./dev build")


def quire_run(*arguments, model=True, stdin="", **options):
    return quire("run", *(["-m", MODEL] if model else []), *arguments, input=stdin, **options)


@needs_model
def test_streams_the_answer_and_its_statistics():
    result = quire_run("-p", "Say hello.", "--temp", "0", "-n", "12")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() and result.stdout.endswith("\n")
    for figure in ["first token after", "tok/s", "GB/s", "sampling: temperature 0", "seed", "finish: "]:
        assert figure in result.stderr
    quiet = quire_run("-p", "Say hello.", "--temp", "0", "-n", "12", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")


@needs_model
def test_the_models_recommended_sampling_is_used_and_printed():
    result = quire_run("-p", "What is the capital of France?", "--seed", "1")
    assert "Paris" in result.stdout
    assert "sampling: temperature 0.1, top-p 0.9, repetition penalty 1.1 (recommended for this model)" in result.stderr
    sampling = json.loads(quire_run("-p", "Hi", "-n", "1", "--top-p", "0.5", "--json").stdout)["sampling"]
    assert sampling["top_p"] == pytest.approx(0.5) and sampling["temperature"] == pytest.approx(0.1)


@needs_model
def test_speculation_tells_what_each_drafter_did():
    flags = ("-p", "Repeat: one two three one two three one two three", "--temp", "0", "-n", "30", "--speculative", "ngram", "--speculate-always")
    assert re.search(r"\n  ngram: \d+ drafts, \d+ of \d+ tokens right, ", quire_run(*flags).stderr)
    timings = json.loads(quire_run(*flags, "--json").stdout)["timings"]
    (ngram,) = timings["drafters"]
    assert ngram["name"] == "ngram" and ngram["errors"] == 0 and ngram["drafted_tokens"] == timings["drafted_tokens"] > 0


@needs_model
def test_a_pack_cache_changes_no_answer(tmp_path):
    def tokens(*flags):
        result = quire_run("-p", "Tell me about the sea.", "--seed", "1", "-n", "20", "--json", *flags)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["tokens"], result.stderr

    cached = ("--pack-cache", str(tmp_path / "packs"))
    right, _ = tokens()
    assert tokens(*cached) == (right, "")
    assert tokens(*cached) == (right, "")
    (pack,) = (tmp_path / "packs").iterdir()
    content = bytearray(pack.read_bytes())
    content[-1] ^= 1
    pack.write_bytes(content)
    again, warning = tokens(*cached)
    assert again == right and warning.count("\n") == 1 and f"{pack} has a wrong checksum" in warning
    assert tokens(*cached) == (right, "")


@needs_model
def test_answers_are_limited_to_512_tokens_unless_n_says_otherwise():
    answer = json.loads(quire_run("-p", "x", "--ignore-eos", "--json", "--temp", "1").stdout)
    assert (answer["usage"]["completion_tokens"], answer["finish_reason"]) == (512, "length")
    assert "[stopped at the -n limit of 3 tokens]" in quire_run("-p", "Tell me a story.", "-n", "3").stderr


@needs_model
def test_an_answer_that_repeats_itself_is_stopped():
    loop = ["--raw", "-p", "la la la la la la la la la la la la la la la la", "--temp", "0", "--repeat-penalty", "1", "-n", "200"]
    result = quire_run(*loop)
    assert "repeated itself" in result.stderr and "finish: repetition" in result.stderr
    stopped = json.loads(quire_run(*loop, "--json").stdout)
    assert stopped["stop_reason"] == "repetition" and len(stopped["tokens"]) < 150
    assert stopped["usage"]["completion_tokens"] == len(stopped["tokens"])
    assert json.loads(quire_run(*loop, "--no-loop-check", "--json").stdout)["usage"]["completion_tokens"] > 150


@needs_model
def test_the_demonstration_model_says_what_it_is():
    if MODEL.name != "SmolLM2-135M-Instruct.Q4_1.gguf":
        pytest.skip("another test model")
    env = {**os.environ, "QUIRE_MODELS": str(MODEL.parent)}
    command = ["run", "-m", "smollm2", "-p", "Hi", "-n", "1"]
    assert "demonstration" in quire(*command, env=env).stderr
    assert quire(*command, "-q", env=env).stderr == ""


@needs_model
def test_a_chat_template_of_the_users_own(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{{ prefix }}{% for m in messages %}{{ m.content }}{% endfor %}")
    flags = ["-p", "one two", "-n", "1", "--json", "--chat-template", template]
    assert json.loads(quire_run(*flags).stdout)["usage"]["prompt_tokens"] == 2
    longer = quire_run(*flags, "--chat-template-kwargs", '{"prefix": "zero "}')
    assert json.loads(longer.stdout)["usage"]["prompt_tokens"] == 3
    assert json.loads(quire_run("-p", "Hi", "-n", "1", "--json", "--chat-template", "chatml").stdout)["tokens"]
    for wrong in ["[1]", "{"]:
        refused = quire_run(*flags, "--chat-template-kwargs", wrong)
        assert refused.returncode == 2 and "--chat-template-kwargs must be a JSON object" in refused.stderr


@needs_model
def test_nothing_of_the_messages_is_dropped(tmp_path):
    messages = tmp_path / "messages.json"
    call = {"function": {"name": "f", "arguments": "{cut"}}
    messages.write_text(json.dumps([{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, {"role": "user", "content": "Hi"},
                                    {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": None}, {"role": "user", "content": "?"}]))
    assert json.loads(quire_run("--messages", messages, "-n", "1", "--json").stdout)["tokens"]
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages[-1].content }}")
    refused = quire_run("--messages", messages, "-n", "1", "--chat-template", template)
    assert refused.returncode == 1 and "messages[0].content" in refused.stderr
    named = quire_run("-p", "Hi", "-n", "1", "--chat-template", "nothing-of-this-name")
    assert named.returncode == 2


@needs_model
def test_json_is_one_object_with_the_same_text():
    text = quire_run("-p", "Say hello.", "--temp", "0", "-n", "12", "--quiet").stdout
    result = quire_run("-p", "Say hello.", "--temp", "0", "-n", "12", "--json")
    answer = json.loads(result.stdout)
    assert answer["text"].rstrip("\n") == text.rstrip("\n")
    assert len(answer["tokens"]) == answer["usage"]["completion_tokens"] <= 12
    assert answer["finish_reason"] in ["stop", "length"]
    assert answer["timings"]["ttft_seconds"] > 0 and answer["timings"]["decode_bytes_per_token"] > 0
    assert result.stderr == ""


@needs_model
def test_a_seed_repeats_an_answer():
    def answer(*arguments):
        return json.loads(quire_run("-p", "Tell me a story.", "-n", "24", "--json", *arguments).stdout)

    drawn = answer("--temp", "1")
    assert answer("--temp", "1", "--seed", str(drawn["seed"]))["tokens"] == drawn["tokens"]
    assert len({answer("--temp", "1", "--seed", str(seed))["text"] for seed in range(4)}) > 1


@needs_model
def test_messages_prompt_and_standard_input_are_one_prompt(tmp_path):
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Name a colour."}]
    (tmp_path / "m.json").write_text(json.dumps(messages))
    flags = ["--temp", "0", "-n", "16", "--json"]
    results = [
        quire_run("--messages", tmp_path / "m.json", *flags),
        quire_run("--messages", "-", *flags, stdin=json.dumps(messages)),
        quire_run("-p", "Name a colour.", "--system", "You are brief.", *flags),
        quire_run("--system", "You are brief.", *flags, stdin="Name a colour.\n"),
    ]
    answers = [json.loads(r.stdout) for r in results]
    assert len({(a["text"], a["usage"]["prompt_tokens"]) for a in answers}) == 1


NOTES = "The meeting moved to Friday at ten.\n" * 20


@needs_model
def test_what_is_piped_in_follows_the_prompt(tmp_path):
    flags = ["--temp", "0", "-n", "8", "--json"]

    def answer(*arguments, **options):
        done = quire_run(*arguments, *flags, **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    joined = answer("-p", "Summarise:\n\n" + NOTES.removesuffix("\n"))
    assert answer("-p", "Summarise:", stdin=NOTES)["tokens"] == joined["tokens"]
    assert answer("--prompt=Summarise:\n", stdin="\ufeff" + NOTES)["usage"] == joined["usage"]
    assert answer("-p", "", stdin="Summarise:\n\n" + NOTES)["usage"] == joined["usage"]
    system = answer("-p", "Summarise:", "--system", "Be brief.", stdin=NOTES)["usage"]["prompt_tokens"]
    assert system > 200 and answer("--raw", "-p", "Notes:", stdin=NOTES)["usage"]["prompt_tokens"] > 150
    alone = answer("-p", "Summarise:")["usage"]["prompt_tokens"]
    with open(tmp_path / "notes", "w+") as notes:
        notes.write(NOTES)
        notes.seek(0)
        assert json.loads(quire("run", "-m", MODEL, "-p", "Summarise:", *flags, stdin=notes).stdout)["usage"] == joined["usage"]
    for empty in ["", "\n"]:
        assert answer("-p", "Summarise:", stdin=empty)["usage"]["prompt_tokens"] == alone
    # Without any standard input at all.
    closed = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", QUIRE, "run", "-m", MODEL, "-p", "Summarise:", *flags],
                            capture_output=True, text=True, timeout=60)
    assert json.loads(closed.stdout)["usage"]["prompt_tokens"] == alone


def test_text_on_standard_input_is_never_dropped(tmp_path):
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "Hi"}]')
    run = ["run", "-m", "x"]
    for arguments, stdin, code, message in [
        ([*run, "--messages", tmp_path / "m.json"], b"notes", 2, "standard input"),
        ([*run, "-p", "x"], b"caf\xe9", 1, "byte 3 is 0xE9"),
        ([*run], b"caf\xe9", 1, "byte 3 is 0xE9"),
        ([*run, "-p", "x"], b"\x7fELF\0", 1, "byte 4 is 0"),
        ([*run, "-p", "x"], "Hi".encode("utf-16"), 1, "UTF-16"),
    ]:
        done = subprocess.run([QUIRE, *arguments], input=stdin, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (code, b"") and message in done.stderr.decode(), done.stderr
        assert len(done.stderr.splitlines()) == 1
    done = subprocess.run(["sh", "-c", 'exec "$@" </', "sh", QUIRE, *run, "-p", "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "standard input cannot be read: Is a directory" in done.stderr


@needs_model
def test_a_text_longer_than_the_context_is_refused():
    done = quire_run("-p", "Summarise:", "-c", "64", stdin=NOTES)
    assert done.returncode == 1 and "63 fit" in done.stderr.splitlines()[-1] and done.stdout == ""


@needs_model
def test_a_silent_pipe_does_not_hang():
    silent = subprocess.Popen([QUIRE, "run", "-m", MODEL, "-p", "Hi", "-n", "2", "-q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    assert silent.wait(timeout=90) == 0
    assert "standard input stays open" in silent.stderr.read() and silent.stdout.read()


def test_without_home_nothing_is_written_to_the_current_folder(tmp_path):
    env = {name: value for name, value in os.environ.items() if name not in ["HOME", "QUIRE_MODELS", "QUIRE_TUNE"]}
    for home in [{}, {"HOME": ""}, {"HOME": "."}]:
        done = quire("run", "-m", "gemma3-270m", "-p", "Hi", "-n", "1", env=env | home, cwd=tmp_path)
        assert " ./.cache" not in done.stderr and '".cache' not in done.stderr
        assert "Known models" in quire("list", env=env | home, cwd=tmp_path).stdout
        if MODEL.exists():
            assert quire("run", "-m", MODEL, "-p", "Hi", "-n", "1", env=env | home, cwd=tmp_path).returncode == 0
        assert list(tmp_path.iterdir()) == []


def test_a_base_model_completes(tmp_path):
    """A file of its name is enough, because it is not looked into before the prompt is known."""
    if not MODEL.exists():
        pytest.skip(f"no model at {MODEL}: ./dev fetch")
    base = tmp_path / "gemma-3-270m-Q4_K_M.gguf"
    base.symlink_to(MODEL)
    assert "base" in quire("list").stdout
    flags = ["-p", "The capital of France is", "-n", "4", "--temp", "0", "--repeat-penalty", "1", "--json"]
    raw = json.loads(quire_run("--raw", *flags).stdout)
    for model in [["-m", base], ["-m", "gemma3-270m"]]:
        done = quire("run", *model, *flags, input="", env={**os.environ, "QUIRE_MODELS": str(tmp_path)})
        assert json.loads(done.stdout)["tokens"] == raw["tokens"]
    chats = json.loads(quire_run(*flags).stdout)["usage"]
    assert json.loads(quire("run", "-m", base, *flags, "--chat-template", "chatml", input="").stdout)["usage"]["prompt_tokens"] > 5
    assert chats["prompt_tokens"] > raw["usage"]["prompt_tokens"] == 5
    assert "base model" in quire("run", "-m", base, "-p", "Hi", "-n", "1", input="").stderr


@needs_model
def test_raw_continues_the_text_without_a_template():
    raw = json.loads(quire_run("-p", "The capital of France is", "--raw", "--temp", "0", "-n", "4", "--json").stdout)
    assert raw["usage"]["prompt_tokens"] == 5
    assert "Paris" in raw["text"]


@needs_model
def test_a_stop_string_ends_the_answer_and_is_not_shown():
    flags = ["-p", "1 2 3 4 5 6 7", "--raw", "--temp", "0", "-n", "40", "--json"]
    whole = json.loads(quire_run(*flags).stdout)["text"]
    stop = whole[9:12]
    cut = json.loads(quire_run(*flags, "--stop", "[never]", "--stop", stop).stdout)
    assert cut["text"] == whole[: whole.index(stop)]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)


@needs_model
def test_answers_follow_a_schema_regex_choice_or_grammar(tmp_path):
    def answer(*flags):
        done = quire_run("-p", "Describe a person.", "--temp", "1", "--seed", "1", "-n", "200", "-q", *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout.removesuffix("\n")

    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "maximum": 99}},
              "required": ["name", "age"], "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "grammar.gbnf").write_text('root ::= "<" [a-z]{1,8} ">"')
    from_file = answer("--json-schema", tmp_path / "schema.json")
    assert list(json.loads(from_file)) == ["name", "age"]
    assert answer("--json-schema", json.dumps(schema)) == from_file
    assert re.fullmatch("[0-9]{4}-[0-9]{2}", answer("--regex", "[0-9]{4}-[0-9]{2}"))
    assert answer("--choice", "yes,no", "--choice", "perhaps") in ["yes", "no", "perhaps"]
    assert re.fullmatch("<[a-z]{1,8}>", answer("--grammar", tmp_path / "grammar.gbnf"))
    whole = quire_run("-p", "Say hello as JSON.", "--json-object", "--json", "--temp", "0", "-n", "300")
    assert isinstance(json.loads(json.loads(whole.stdout)["text"]), dict)


def test_a_refused_constraint_is_explained(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    run = ["run", "-m", "x", "-p", "x"]
    for flags, code, message in [
        (["--regex", "("], 2, "a group is not closed"),
        (["--json-schema", '{"type": 1}'], 2, "type"),
        (["--json-schema", '{"type": "string", "format": "iri"}'], 1, "not supported"),
        (["--json-schema", tmp_path / "bad.json"], 1, "bad.json"),
        (["--grammar", tmp_path / "none.gbnf"], 1, "none.gbnf"),
        (["--regex", "a", "--choice", "b"], 2, "--choice"),
        (["--regex", "a", "--ignore-eos"], 2, "--ignore-eos"),
        (["--choice", "a,,b"], 2, "has an empty text"),
        (["--choice", ""], 2, "--choice must not be empty"),
        (["--json-schema", ""], 2, "--json-schema must not be empty"),
    ]:
        done = quire(*run, *flags)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), (flags, done.stderr)
        assert done.stderr.startswith("quire: ") and message in done.stderr, done.stderr


@needs_model
def test_the_less_common_samplers():
    def tokens(*flags):
        raw = ["--raw", "-p", "la" + " la" * 15, "-n", "24", "--json", "--seed", "3", "--no-loop-check"]
        return tuple(json.loads(quire_run(*raw, *flags).stdout)["tokens"])

    samplers = [["--mirostat", "1", "--mirostat-tau", "1"], ["--mirostat", "2", "--mirostat-tau", "2"],
                ["--xtc-probability", "0.5", "--xtc-threshold", "0.05"]]
    answers = [tokens("--temp", "1", *sampler) for sampler in [[], *samplers]]
    assert len(set(answers)) == 4 and tokens("--temp", "1", *samplers[0]) == answers[1]
    greedy = ["--temp", "0", "--repeat-penalty", "1"]
    assert tokens(*greedy, "--dry-multiplier", "5") != tokens(*greedy)
    described = quire_run("-p", "Hi", "-n", "1", "--mirostat", "2", "--dry-multiplier", "0.8").stderr
    assert "DRY 0.8 (base 1.75, from 2 tokens), Mirostat 2 (tau 5, eta 0.1)" in described


@needs_model
def test_output_is_always_whole_characters():
    result = subprocess.run(
        [QUIRE, "run", "-m", MODEL, "-p", "Write only emoji and Chinese: 世界 🌍🌎🌏", "--raw", "--ignore-eos", "--temp", "2",
         "--top-k", "0", "--min-p", "0", "--seed", "1", "-n", "200", "--quiet"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert result.returncode == 0
    result.stdout.decode("utf-8")


@needs_model
def test_a_reader_that_leaves_ends_it_quietly():
    run = subprocess.Popen([QUIRE, "run", "-m", MODEL, "-p", "x", "--ignore-eos"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout.read(5)
    run.stdout.close()
    assert run.wait(timeout=30) == 0
    assert run.stderr.read() == b""


@needs_model
def test_ctrl_c_stops_a_script_with_its_signal():
    run = subprocess.Popen([QUIRE, "run", "-m", MODEL, "-p", "x", "--ignore-eos"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout.read(5)
    run.send_signal(signal.SIGINT)
    _, figures = run.communicate(timeout=30)
    assert run.returncode == -signal.SIGINT
    assert b"finish: cancelled" in figures


@needs_model
def test_a_full_context_is_reported():
    flags = ["--raw", "--ignore-eos", "-c", "64", "--temp", "0"]
    result = quire_run("-p", "one two three", *flags)
    assert "the context of 64 tokens is full" in result.stderr
    result = quire_run("-p", "one two three " * 40, *flags)
    assert result.returncode == 1
    assert "63 fit" in result.stderr.splitlines()[-1]


def test_seeds_out_of_range_are_refused(tmp_path):
    for command in [["synth", "-o", tmp_path / "x.gguf"], ["bench", "serve", "--url", "http://127.0.0.1:9", "-c", "1"]]:
        for seed in ["-1", "010", "18446744073709551616"]:
            assert quire(*command, "--seed", seed).returncode == 2


@pytest.mark.parametrize("arguments", [
    ["run", "-m", "x", "-p", "x", "-t", "010"], ["run", "-m", "x", "-p", "x", "-n", "-010"], ["run", "-m", "x", "-p", "x", "--top-k", "0x10"],
    ["serve", "-m", "x", "--port", "08080"], ["bench", "-m", "x", "-p", "1,010"], ["bench", "serve", "--url", "x", "-c", "010"],
])
def test_numbers_are_decimal(arguments):
    done = quire(*arguments)
    assert done.returncode == 2 and "decimal number without leading zeros" in done.stderr


@pytest.mark.parametrize("arguments, message", [
    (["runn", "-m", "x"], "unknown command 'runn'. Did you mean run?"),
    (["run", "-m", "x", "-p", "x", "--top-p", "1.5"], "--top-p must be between 0 and 1, not 1.5"),
    (["run", "-m", "x", "-p", "x", "--tempratur", "1"], "unknown flag --tempratur. Did you mean --temperature?"),
    (["run", "-m", "x", "-p", "x", "-n", "0"], "--max-tokens must be at least 1, or -1 for no limit, not 0"),
    (["run", "-m", "x", "two words"], "unexpected argument 'two words'; pass a prompt with -p"),
    (["serve", "-m", "x", "--max-model-len", "9999999999"], "--max-model-len must be between 0 and 2^31 - 1, not 9999999999"),
    (["serve", "-m", "x", "--max-num-seqs", "0"], "--max-num-seqs must be between 1 and 65536, not 0"),
    ([], "no command given"),
])
def test_a_bad_command_line_is_explained(arguments, message):
    done = quire(*arguments, input="")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"quire: {message}") and len(done.stderr.splitlines()) == 1


def test_an_unknown_model_is_explained():
    for command in ["run", "serve"]:
        done = quire(command, "-m", "smolm2", *(["-p", "x", "-q"] if command == "run" else []))
        assert done.returncode == 1 and "model 'smolm2' not found" in done.stderr and "Did you mean smollm2?" in done.stderr
    done = quire("run", "-q", "-p", "x", "-m", "a" * 5000)
    assert done.returncode == 1 and len(done.stderr) < 200


def test_list_and_help_and_completion(tmp_path):
    listed = quire("list", env={**os.environ, "QUIRE_MODELS": str(tmp_path)})
    assert listed.returncode == 0 and "smollm2" in listed.stdout and "not downloaded" in listed.stdout
    assert "--top-p" in quire("help", "run").stdout and "Commands:" in quire("help").stdout
    unknown = quire("help", "serv")
    assert unknown.returncode == 2 and "Did you mean serve?" in unknown.stderr
    script = quire("completion", "bash").stdout
    done = subprocess.run(["bash", "-c", script + "\nCOMP_WORDS=(quire run --top); COMP_CWORD=2; _quire; echo ${COMPREPLY[@]}"],
                          capture_output=True, text=True)
    assert done.stdout.split() == ["--top-k", "--top-p", "--top-n-sigma", "--top-nsigma"], done.stderr


@needs_model
def test_serve_reads_flags_from_a_file(tmp_path):
    (tmp_path / "quire.toml").write_text(f'model = "{MODEL}"\nport = 0\nmax-num-seqs = 3\nserved-model-name = ["a", "b"]\n')
    server = subprocess.Popen([QUIRE, "serve", "--config", tmp_path / "quire.toml", "--max-model-len", "64", "--log-format", "json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert " at http://" in server.stdout.readline()
    server.send_signal(signal.SIGTERM)
    log = server.communicate(timeout=30)[1]
    assert server.returncode == 0 and "3 sequences of 64" in log and "temperature 0.1" in log
    (tmp_path / "wrong.toml").write_text("modle = 1\n")
    done = quire("serve", "-m", "x", "--config", tmp_path / "wrong.toml")
    assert done.returncode == 2 and "there is no setting 'modle'" in done.stderr


@needs_model
def test_tokenize_refuses_what_is_not_an_id():
    decode = ["tokenize", "-m", MODEL, "--decode", "-p"]
    assert quire(*decode, "[0, 1]").returncode == 0
    for wrong in ["abc", "9999999", "1 -2", "1.5"]:
        done = quire(*decode, wrong)
        assert done.returncode == 1 and "is not a token id" in done.stderr and done.stdout == ""


def test_template_fails_if_a_line_failed(tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    good, bad = '{"messages": [{"role": "user", "content": "x"}]}', "{"
    done = quire("template", "--template", tmp_path / "t.jinja", input=good + "\n" + bad + "\n")
    assert done.returncode == 1 and "1 of 2 lines failed" in done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"text": "x"}, {"error": "this line is not valid JSON"}]
    assert quire("template", "--template", tmp_path / "t.jinja", input=good).returncode == 0


@needs_model
def test_deeply_nested_json_is_refused(tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages }}")
    nested = "[" * 100_000 + "]" * 100_000
    done = quire("template", "--template", tmp_path / "t.jinja", input=f'{{"messages": {nested}}}\n')
    assert done.returncode == 1 and "nested deeper than 64 levels" in done.stdout
    done = quire("tokenize", "-m", MODEL, "--decode", "--jsonl", input=nested + "\n")
    assert done.returncode == 1 and "nested deeper than 64 levels" in done.stderr
    done = quire_run("-p", "Hi", "--chat-template-kwargs", '{"a":' * 100 + "1" + "}" * 100)
    assert done.returncode == 2 and "nested deeper than 64 levels" in done.stderr


@pytest.mark.parametrize("command", ["perplexity", "verify", "bench"])
def test_flags_without_effect_are_refused(command):
    done = quire(command, "-m", "x", *(["-f", "x"] if command == "perplexity" else []), "--scheduler", "static")
    assert done.returncode == 2 and "--scheduler" in done.stderr


def test_output_that_cannot_be_written_is_exit_code_1():
    with open("/dev/full", "w") as full:
        done = subprocess.run([QUIRE, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == 1 and "standard output" in done.stderr


@pytest.mark.parametrize("arguments", [
    [], ["-m", "x"], ["-m", "x", "-p", "x", "--temp", "-1"], ["-m", "x", "-p", "x", "--top-p", "1.5"],
    ["-m", "x", "-p", "x", "--temp", "nan"], ["-m", "x", "-p", "x", "-n", "0"], ["-m", "x", "-p", "x", "--stop", ""],
    ["-m", "x", "-p", "x", "--seed", "-2"], ["-m", "x", "-p", "x", "--messages", "m"], ["-m", "x", "--raw", "--system", "s"],
    ["-m", "x", "-p", "x", "--no-such-flag"], ["-m", "x", "-p", "x", "--seed", "010"], ["-m", "x", "-p", "x", "--seed", "18446744073709551616"],
    ["-m", "x", "-p", "x", "--host-cache-size", "-1"], ["-m", "x", "-p", "x", "--memory", "010MiB"],
    ["-m", "x", "-p", "x", "--memory", "99999999999999999999"], ["-m", "x", "-p", "x", "--kv-cache-size", "4096PiB"],
])
def test_a_wrong_command_line_is_exit_code_2(arguments):
    assert quire_run(*arguments, model=False).returncode == 2


def test_a_failed_run_is_exit_code_1_and_one_line(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 40)
    (tmp_path / "m.json").write_text("{")
    for arguments in [["-m", tmp_path / "broken.gguf", "-p", "x"], ["-m", tmp_path / "nothing.gguf", "-p", "x"],
                      ["-m", "x", "--messages", tmp_path / "m.json"]]:
        result = quire_run(*arguments, model=False)
        assert result.returncode == 1, arguments
        assert result.stdout == "" and len(result.stderr.splitlines()) == 1 and result.stderr.startswith("quire: ")


class Terminal:
    """A program with a pseudo-terminal."""

    def __init__(self, *command, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], [str(c) for c in command], env)
        self.screen = ""

    def expect(self, pattern, seconds=60):
        """Waits for the pattern after the last match; returns the text up to its end."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.screen)):
            ready, _, _ = select.select([self.fd], [], [], max(end - time.monotonic(), 0))
            assert ready, f"waited for {pattern!r}, got {self.screen!r}"
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            assert data, f"the program ended before {pattern!r}: {self.screen!r}"
            self.screen += data.decode("utf-8", "replace")
        text, self.screen = self.screen[: match.end()], self.screen[match.end():]
        return text

    def prompt(self):
        """Waits for the prompt, and until the line editor reads: it sets up the terminal just after that."""
        text = self.expect("(^|\n)(\x1b\\[\\?2004h)?> ")  # asks for bracketed paste first
        end = time.monotonic() + 10
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < end, "the line editor does not start"
            time.sleep(0.005)
        return text

    def type(self, text):
        os.write(self.fd, text.encode())

    def exit_code(self):
        while select.select([self.fd], [], [], 30)[0]:
            try:
                os.read(self.fd, 65536)
            except OSError:  # the other side is closed
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def chat(tmp_path):
    terminals = []

    def start(*arguments, **variables):
        env = {"HOME": str(tmp_path), "TERM": "xterm", "LANG": "C", "PATH": os.environ["PATH"], "NO_COLOR": "1", **variables}
        terminals.append(Terminal(str(QUIRE), "run", "-m", str(MODEL), "--temp", "0", *arguments, env=env))
        if "NO_COLOR" not in variables:
            terminals[-1].prompt()
        return terminals[-1]

    yield start
    for terminal in terminals:
        os.close(terminal.fd)  # hangs up on a program that a failed test left running


@needs_model
def test_chat_remembers_saves_and_clears(chat, tmp_path):
    terminal = chat("-n", "20")
    for line in ["Hello, I am Zoë.", "What did I say?"]:
        terminal.type(line + "\r")
        terminal.prompt()
    terminal.type("/save ~/chat.json\r")
    terminal.expect("4 messages written")
    messages = json.loads((tmp_path / "chat.json").read_text())
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2
    assert messages[0]["content"] == "Hello, I am Zoë."
    # The same two turns, as a script asks for them: the chat's second answer saw the first turn.
    (tmp_path / "m.json").write_text(json.dumps(messages[:3]))
    again = json.loads(quire_run("--messages", tmp_path / "m.json", "--temp", "0", "-n", "20", "--json").stdout)
    assert again["text"] == messages[3]["content"]
    terminal.prompt()
    terminal.type("/stats\r")
    assert "of 8192 tokens" in terminal.expect("seed +[0-9]+")
    assert "KV cache" in terminal.expect("total +[0-9]+ MiB")
    for line, answer in [("/reset", "conversation cleared"), ("/system Be brief.", "system message set"), ("/system", "system: Be brief."),
                         ("/nonsense", "unknown command /nonsense"), ("/sav x", "Did you mean save?")]:
        terminal.prompt()
        terminal.type(line + "\r")
        terminal.expect(answer)
    terminal.prompt()
    terminal.type("/quit\r")
    assert terminal.exit_code() == 0
    assert "Zoë" in (tmp_path / ".cache/quire/history").read_text()


@needs_model
def test_each_answer_of_a_chat_follows_the_constraint(chat):
    terminal = chat("--choice", "certainly,never")
    for line in ["Shall we?", "Are you sure?"]:
        terminal.type(line + "\r")
        assert re.search(r"\n(\x1b\[\?2004l\r?)?(certainly|never)\r\n", terminal.prompt())


@needs_model
def test_ctrl_c_stops_the_answer_and_not_the_chat(chat):
    terminal = chat("--ignore-eos")
    terminal.type("Count for ever.\r")
    terminal.expect(r"Count for ever\.\r\n(\x1b\[\?2004l)?\w")
    terminal.type("\x03")
    terminal.expect(r"\[stopped\]")
    terminal.prompt()
    terminal.type("half a line")
    terminal.expect("half a line")
    terminal.type("\x03")
    terminal.expect("press Ctrl-D or type /quit")
    terminal.prompt()
    terminal.type("\x04")
    assert terminal.exit_code() == 0


@needs_model
def test_pasted_lines_are_one_message(chat, tmp_path):
    terminal = chat("-n", "4")
    terminal.type("\x1b[200~first line\rsecond line\rthird\x1b[201~ and more\r")
    terminal.prompt()
    terminal.type("/save ~/chat.json\r")
    terminal.expect("2 messages written")
    messages = json.loads((tmp_path / "chat.json").read_text())
    assert messages[0]["content"] == "first line\nsecond line\nthird and more"


@needs_model
def test_keys_typed_during_an_answer_show_at_the_next_prompt(chat):
    terminal = chat("-n", "60", "--ignore-eos")
    terminal.type("Count.\r")
    terminal.expect(r"Count\.\r\n(\x1b\[\?2004l)?\w")
    terminal.type("type-ahead")
    answer = terminal.expect(r"\[stopped at the -n limit of 60 tokens\]")
    assert "type-ahead" not in answer
    terminal.expect("> type-ahead")


@needs_model
def test_colours_only_without_no_color(chat):
    assert "\x1b[1;32m> " in chat(NO_COLOR="").expect("> ")
    plain = chat(NO_COLOR="1").expect("> ")
    assert "\x1b[1" not in plain and "\x1b[2m" not in plain


@needs_model
def test_chat_says_when_the_context_is_full(chat):
    terminal = chat("-c", "96", "--ignore-eos")
    terminal.type("Tell me a long story.\r")
    terminal.expect(r"the context of 96 tokens is full; /reset")
    terminal.prompt()
    terminal.type("Go on.\r")
    terminal.expect(r"error: the context of 96 tokens is full")
    terminal.prompt()
    terminal.type("/reset\r")
    terminal.prompt()
    terminal.type("Hello\r")
    terminal.expect(r"the context of 96 tokens is full; /reset")
    terminal.prompt()
    terminal.type("\x04")
    assert terminal.exit_code() == 0
