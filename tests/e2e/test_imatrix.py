"""quire imatrix: files, flags and messages. tests/golden/cli/calibration_test.cc checks the sums."""

import json
import struct

import pytest

from conftest import GOLDEN, MODEL, needs_model, quire, quire_json

TEXT = GOLDEN / "README.md"
DOCS = GOLDEN.parents[2] / "docs"
FAST = ["-c", "64", "--chunks", "4"]


@pytest.fixture(scope="module")
def f32(tiny):
    return tiny("f32")


@pytest.fixture(scope="module")
def matrix(f32, tmp_path_factory):
    path = tmp_path_factory.mktemp("imatrix") / "m.gguf"
    done = quire("imatrix", "-m", f32, "-f", TEXT, "-o", path, *FAST)
    assert done.returncode == 0, done.stderr
    assert "14 tensors, 4 chunks of 64 tokens" in done.stderr
    return path


def legacy(path):
    """Entries of the older form: name to (calls, sums)."""
    data, at = path.read_bytes(), 4
    entries = {}
    for _ in range(struct.unpack_from("<i", data)[0]):
        (size,) = struct.unpack_from("<i", data, at)
        name = data[at + 4 : at + 4 + size].decode()
        at += 4 + size
        calls, count = struct.unpack_from("<ii", data, at)
        entries[name] = calls, struct.unpack_from(f"<{count}f", data, at + 8)
        at += 8 + 4 * count
    return entries


@needs_model
def test_a_matrix_lowers_the_divergence(tmp_path):
    matrix = tmp_path / "m.gguf"
    assert quire("imatrix", "-m", MODEL, "-f", TEXT, "-o", matrix, "-c", "256").returncode == 0
    found = []
    for name, flags in (("plain", []), ("weighted", ["--imatrix", matrix])):
        path = tmp_path / name
        done = quire("quantize", MODEL, path, "--type", "Q4_0", *flags)
        assert done.returncode == 0 and "importance" not in done.stderr, done.stderr
        found.append(quire_json("compare", "-m", path, "-b", MODEL, "-f", DOCS / "prefix-cache.md", "-c", "128", "--chunks", "4")["mean_kl"]["value"])
    assert found[1] < 0.8 * found[0]


def test_threads_and_kernels_of_one_definition_give_one_file(f32, matrix, tmp_path):
    for threads in ("1", "2"):
        path = tmp_path / f"{threads}.gguf"
        assert quire("imatrix", "-m", f32, "-f", TEXT, "-o", path, *FAST, "-t", threads).returncode == 0
        assert path.read_bytes() == matrix.read_bytes()


def test_the_older_form_has_the_same_means(f32, matrix, tmp_path):
    old = tmp_path / "m.dat"
    assert quire("imatrix", "-m", f32, "-f", TEXT, "-o", old, *FAST).returncode == 0
    entries = legacy(old)
    assert len(entries) == 14 and all(calls == 4 for calls, _ in entries.values())
    files = [tmp_path / "a.gguf", tmp_path / "b.gguf"]
    for path, out in zip((matrix, old), files):
        assert quire("quantize", f32, out, "--type", "Q4_0", "--imatrix", path).returncode == 0
    # The same weights; the metadata name the matrix.
    assert quire_json("compare", "-m", files[0], "-b", files[1], "-f", TEXT, "-c", "64", "--chunks", "2")["max_kl"] < 1e-4


def test_the_output_matrix_is_counted_if_asked(f32, tmp_path):
    path = tmp_path / "m.gguf"
    done = quire("imatrix", "-m", f32, "-f", TEXT, "-o", path, *FAST, "--process-output")
    assert done.returncode == 0 and "15 tensors" in done.stderr


def test_matrices_add_up(f32, matrix, tmp_path):
    both, twice = tmp_path / "both.dat", tmp_path / "twice.dat"
    assert quire("imatrix", "-m", f32, "-f", TEXT, "-o", both, *FAST, "--in-file", matrix).returncode == 0
    done = quire("imatrix", "-m", f32, "-f", TEXT, "-o", twice, *FAST, "--in-file", matrix, "--in-file", matrix)
    assert "12 chunks" in done.stderr
    for name, (_, sums) in legacy(both).items():
        assert [s / 8 for s in sums] == pytest.approx([s / 12 for s in legacy(twice)[name][1]], rel=1e-5)


def test_lines_of_text_and_chats(f32, tmp_path):
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": "the little dog and the cat " * 20}) + "\n\n" for _ in range(4)))
    done = quire("imatrix", "-m", f32, "-f", lines, "-o", tmp_path / "m.gguf", "-c", "32", "--chunks", "-1")
    assert done.returncode == 0, done.stderr
    assert quire("quantize", f32, tmp_path / "q.gguf", "--type", "Q4_K_M", "--imatrix", tmp_path / "m.gguf").returncode == 0


@needs_model
def test_chats_are_rendered(tmp_path):
    lines = tmp_path / "chats.jsonl"
    lines.write_text("".join(json.dumps({"messages": [{"role": "user", "content": f"What is {i}?"}, {"role": "assistant", "content": "A number."}]}) + "\n" for i in range(20)))
    done = quire("imatrix", "-m", MODEL, "-f", lines, "-o", tmp_path / "m.gguf", "-c", "128")
    assert done.returncode == 0 and "210 tensors" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "lines, says",
    [
        ('{"text": 5}', 'line 1: a line must be an object with "messages" or with a string "text"'),
        ('{"text": "a"}\n[]', "line 2: a line must be an object"),
        ('{"text": "a"}\n{"text"', "line 2"),
        ('{"messages": [{"role": "user", "content": "hi"}]}', "has no chat template"),
        ('{"text": "short"}', "too few for one chunk"),
        ("", "too few for one chunk"),
    ],
)
def test_wrong_lines_are_named(f32, tmp_path, lines, says):
    path = tmp_path / "chats.jsonl"
    path.write_text(lines)
    done = quire("imatrix", "-m", f32, "-f", path, "-o", tmp_path / "m.gguf")
    assert done.returncode == 1 and says in done.stderr, done.stderr
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (["-f", "nowhere.txt", "-o", "{out}"], 1, "nowhere.txt"),
        (["-f", str(TEXT), "-o", "/nowhere/m.gguf", "-c", "64", "--chunks", "1"], 1, "/nowhere/m.gguf"),
        (["-f", str(TEXT)], 2, "--output is required"),
        (["-o", "{out}"], 2, "--file is required"),
        (["-f", str(TEXT), "-o", "{out}", "-c", "2"], 2, "--context"),
        (["-f", str(TEXT), "-o", "{out}", "--chunks", "-2"], 2, "--chunks"),
        (["-f", str(TEXT), "-o", "{out}", "--chunks", "0"], 2, "must be -1, for all, or at least 1, not 0"),
        (["-f", str(TEXT), "-o", "{out}", "-c", "many"], 2, "--context"),
        (["-f", str(TEXT), "-o", "{out}", "-c", "100000"], 1, "trained for at most 512 tokens"),
        (["-f", str(TEXT.parent), "-o", "{out}"], 1, "is not a regular file"),
        (["-f", str(TEXT), "-o", str(TEXT.parent)], 1, "is not a regular file"),
        (["-f", str(TEXT), "-o", str(TEXT.parent), "--force"], 1, "is not a regular file"),
        (["-f", str(TEXT), "-o", "{out}", "--in-file", "nowhere.dat"], 1, "nowhere.dat"),
        (["-f", str(TEXT), "-o", "{out}", "--in-file", str(TEXT)], 1, "is not an importance matrix"),
        (["-f", str(TEXT), "-o", str(TEXT)], 1, "exists"),
    ],
)
def test_wrong_flags_are_refused(f32, tmp_path, arguments, code, says):
    out = tmp_path / "m.gguf"
    done = quire("imatrix", "-m", f32, *[a.format(out=out) for a in arguments])
    assert done.returncode == code and says in done.stderr, done.stderr
    assert not out.exists()


def test_the_model_itself_is_kept(f32, tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(f32.read_bytes())
    done = quire("imatrix", "-m", model, "-f", TEXT, "-o", model, "--force", "-c", "64", "--chunks", "1")
    assert done.returncode == 1 and "itself, which imatrix would overwrite" in done.stderr, done.stderr
    assert model.read_bytes() == f32.read_bytes()


@needs_model
def test_a_matrix_of_another_model_cannot_be_added(matrix, tmp_path):
    done = quire("imatrix", "-m", MODEL, "-f", TEXT, "-o", tmp_path / "m.gguf", *FAST, "--in-file", matrix)
    assert done.returncode == 1 and "of different models" in done.stderr
