"""quire quantize --resume: runs that are killed and continued. tests/unit/quantize/resume_test.cc interrupts after every tensor."""

import shutil
import signal
import subprocess
import time

import pytest

from conftest import GOLDEN, QUIRE, quire, skip_without_binary

TEXT = GOLDEN.parents[2] / "docs/serving.md"
CALIBRATION = ["--calibrate", TEXT, "--calibration-context", "64", "--calibration-chunks", "8"]


@pytest.fixture(scope="module")
def f32(tiny):
    return tiny("f32")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A float directory with a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    shutil.copytree(GOLDEN / "models/llama", folder)
    for file in (GOLDEN / "converted").glob("tokenizer*.json"):
        shutil.copy(file, folder)
    return folder


def lines_of(journal):
    try:
        return journal.read_text(errors="replace").count("\n")
    except FileNotFoundError:  # not begun, or done at this moment
        return 0


def start_and_stop(out, more, how, *arguments):
    """Sends a signal once the journal has so many more lines. Returns whether the run was stopped, and its messages."""
    skip_without_binary()
    journal = out.with_name(out.name + ".partial") / "journal.jsonl"
    lines = lines_of(journal) + more
    process = subprocess.Popen([QUIRE, "quantize", *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while process.poll() is None and lines_of(journal) < lines and time.monotonic() < deadline:
        time.sleep(0.0005)
    process.send_signal(how)
    messages = process.communicate(timeout=60)[1]
    return process.returncode == -how, messages


def interrupted(out, how, *arguments):
    """Stops a run after its first tensors. Small models take milliseconds, so the signal can come too late: then once more."""
    for _ in range(50):
        stopped, messages = start_and_stop(out, 3, how, *arguments)
        if stopped:
            return messages
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    pytest.fail("the runs were always done before they could be stopped")


def content(path):
    return path.read_bytes() if path.is_file() else {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("flags", [["--type", "IQ2_XS"], ["--target-bpw", "6", "--target-chunks", "1", "--target-context", "32"], ["--type", "Q4_0", *CALIBRATION], ["--method", "gptq", *CALIBRATION], ["--method", "rtn-int4", "--rotate"], ["--type", "Q2_K", "--rotate"]], ids=lambda flags: "".join(f for f in flags if isinstance(f, str) and f[0] != "-"))
def test_killed_runs_continue_to_the_same_bytes(f32, model, tmp_path, flags, how):
    source = f32 if "IQ2_XS" in flags or "--target-bpw" in flags else model
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert quire("quantize", source, whole, *flags).returncode == 0
    command = [source, out, *flags, "-t", "1", "--resume"]
    stopped, messages = True, interrupted(out, how, *command)
    while stopped and not out.exists():  # it can get its name in the moment before the signal
        if how == signal.SIGINT:
            assert f"what is finished is kept in {out}.partial; the same command continues it\n" in messages
        stopped, messages = start_and_stop(out, 2, how, *command)
        assert f"continuing {out}.partial\n" in messages
    assert content(out) == content(whole)
    assert stopped or sorted(p.name for p in tmp_path.iterdir()) == ["out", "whole"]


def interrupted_file(f32, out):
    interrupted(out, signal.SIGKILL, f32, out, "--type", "IQ2_XS", "-t", "1", "--resume")


def test_another_order_is_refused(f32, tmp_path):
    out = tmp_path / "out"
    interrupted_file(f32, out)
    before = content(out.with_name("out.partial"))
    done = quire("quantize", f32, out, "--type", "IQ2_S", "--pure", "--resume")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"{out}.partial was left by a run of another kind: --type was IQ2_XS and is IQ2_S now; --pure was not given and is true now; give the same flags and files again, or start over with --force" in done.stderr
    assert content(out.with_name("out.partial")) == before
    done = quire("quantize", f32, out, "--type", "Q8_0", "--resume", "--force")
    assert done.returncode == 0 and "continuing" not in done.stderr, done.stderr
    assert quire("quantize", f32, tmp_path / "whole", "--type", "Q8_0").returncode == 0
    assert content(out) == content(tmp_path / "whole")


def test_another_model_and_another_text_are_refused(f32, tiny, model, tmp_path):
    out = tmp_path / "out"
    interrupted_file(f32, out)
    done = quire("quantize", tiny("q8_0"), out, "--type", "IQ2_XS", "--resume")
    assert done.returncode == 1 and "the model was" in done.stderr, done.stderr
    text = tmp_path / "text.txt"
    text.write_text(TEXT.read_text())
    flags = ["--method", "gptq", "--calibrate", text, "--calibration-context", "64", "--calibration-chunks", "8", "--resume"]
    interrupted(tmp_path / "folder", signal.SIGKILL, model, tmp_path / "folder", *flags)
    text.write_text(TEXT.read_text() + "more")
    done = quire("quantize", model, tmp_path / "folder", *flags)
    assert done.returncode == 1 and "the content of --calibrate was" in done.stderr, done.stderr


def test_a_damaged_journal_starts_over_with_a_warning(f32, tmp_path):
    out = tmp_path / "out"
    interrupted_file(f32, out)
    journal = tmp_path / "out.partial/journal.jsonl"
    journal.write_text(journal.read_text().replace('"part"', '"paart"'))
    done = quire("quantize", f32, out, "--type", "IQ2_XS", "--resume")
    assert done.returncode == 0 and "quire: warning:" in done.stderr and "is dropped, and the run starts over" in done.stderr
    assert quire("quantize", f32, tmp_path / "whole", "--type", "IQ2_XS").returncode == 0
    assert content(out) == content(tmp_path / "whole")


def test_damaged_tensors_are_computed_again(f32, tmp_path):
    out = tmp_path / "out"
    interrupted_file(f32, out)
    unfinished = tmp_path / "out.partial/output"
    unfinished.write_bytes(bytes(unfinished.stat().st_size))
    assert quire("quantize", f32, out, "--type", "IQ2_XS", "--resume").returncode == 0
    assert quire("quantize", f32, tmp_path / "whole", "--type", "IQ2_XS").returncode == 0
    assert content(out) == content(tmp_path / "whole")


def test_runs_that_fail_early_or_succeed_leave_nothing(f32, model, tmp_path):
    (tmp_path / "short.txt").write_text("a few words")
    done = quire("quantize", f32, tmp_path / "out", "--type", "Q4_0", "--calibrate", tmp_path / "short.txt", "--resume")
    assert done.returncode == 1 and "too few for one chunk" in done.stderr and "is kept" not in done.stderr
    assert quire("quantize", f32, tmp_path / "out", "--type", "Q4_0", "--resume").returncode == 0
    assert quire("quantize", model, tmp_path / "folder", "--method", "nf4", "--resume").returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "out", "short.txt"]


def test_bad_command_lines(f32, tmp_path):
    done = quire("quantize", f32, tmp_path / "out", "--type", "Q4_0", "--resume", "--dry-run")
    assert done.returncode == 2 and "--resume" in done.stderr
    done = quire("quantize", f32, tmp_path / "none/out", "--type", "Q4_0", "--resume")
    assert done.returncode == 1 and "out.partial cannot be written: No such file or directory" in done.stderr, done.stderr
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial/mine").write_text("mine")
    done = quire("quantize", f32, tmp_path / "out", "--type", "Q4_0", "--resume", "--force")
    assert done.returncode == 1 and "no interrupted run has left it; move it away" in done.stderr
    assert (tmp_path / "out.partial/mine").read_text() == "mine"
