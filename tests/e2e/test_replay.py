"""--record and quire replay: a run, computed again."""

import json
import os
import pathlib

import pytest

from conftest import quire


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("q4_1")


@pytest.fixture
def recording(model, tmp_path):
    path = tmp_path / "run.jsonl"
    done = quire("run", "-m", model, "-p", "A prompt", "-n", "12", "--raw", "--record", path)
    assert done.returncode == 0, done.stderr
    return path


def test_a_run_replays_with_other_threads_and_kernels(recording):
    for flags in [], ["-t", "1"], ["--kernels", "reference"], ["-tp", "3"]:
        done = quire("replay", recording, *flags)
        assert done.returncode == 0 and "equal bit by bit" in done.stdout, done.stderr


def test_a_different_row_is_named(recording):
    lines = recording.read_text().splitlines()
    step = json.loads(lines[3])
    step["logits"][0] = "0" * 32
    recording.write_text("\n".join(lines[:3] + [json.dumps(step)] + lines[4:]) + "\n")
    done = quire("replay", recording)
    assert done.returncode == 1 and "step 3 differs" in done.stderr


def test_another_model_is_refused(recording, tiny):
    done = quire("replay", recording, "-m", tiny("q6_k"))
    assert done.returncode == 1 and "recorded with another model" in done.stderr


def test_what_is_no_recording_is_refused(model, tmp_path):
    (text := tmp_path / "text").write_text('{"hello": 1}\n')
    os.mkfifo(tmp_path / "pipe")  # has no writer
    for file in text, tmp_path / "missing", tmp_path / "pipe", tmp_path, pathlib.Path("/dev/zero"):
        done = quire("replay", file, timeout=20)
        assert done.returncode == 1 and file.name in done.stderr


def test_added_lines_are_refused(recording):
    text = recording.read_text()
    for tail in text.splitlines()[-2] + "\n", text.splitlines()[-1] + "\n", text, "\n", "x", "\0" * 9:
        recording.write_text(text + tail)
        done = quire("replay", recording)
        assert done.returncode == 1 and recording.name in done.stderr, tail
    recording.write_text("".join(text.splitlines(True)[:-1]))  # as a crash leaves it
    done = quire("replay", recording)
    assert done.returncode == 0 and "lacks its end" in done.stderr


def test_a_page_store_cannot_be_recorded(model, tmp_path):
    done = quire("run", "-m", model, "-p", "A", "-n", "1", "--record", tmp_path / "x", "--cache-dir", tmp_path / "cache")
    assert done.returncode != 0 and "--record" in done.stderr
