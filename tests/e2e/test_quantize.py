"""quire quantize: files, flags and messages. tests/golden/quantize and tests/golden/quant compare types and losses with llama.cpp's."""

import re
import resource
import signal
import struct

import pytest

from conftest import GOLDEN, MODEL, expect_interrupt_leaves_nothing, needs_model, quire, quire_json, skip_without_binary

LLAMA = GOLDEN / "models/llama"
HF = GOLDEN / "formats/hf-models"
DOCS = GOLDEN.parents[2] / "docs"


@pytest.fixture(scope="module")
def f32(tiny):
    return tiny("f32")


def types(path):
    return {t["name"]: t["type"] for t in quire_json("inspect", path, "--tensors")["tensors"]}


def kl(model, base):
    text = GOLDEN / "README.md"
    return quire_json("compare", "-m", model, "-b", base, "-f", text, "-c", "64", "--chunks", "2", "--activations", "f32", "--kv-cache-dtype", "f32")["mean_kl"]["value"]


MIXES = ["Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS", "MXFP4", "MXFP4_MOE", "NVFP4", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "Q2_K_S",
         "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "TQ1_0", "TQ2_0", "Q2_0", "Q1_0", "BF16", "F16", "F32"]


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_gives_a_file_that_runs(f32, tmp_path, mix):
    done = quire("quantize", f32, tmp_path / "out.gguf", "--type", mix.lower())
    assert done.returncode == 0, done.stderr
    assert re.search(rf"wrote .*out.gguf: {mix}, 20 tensors, [\d.]+ MB, [\d.]+ bits a weight\n$", done.stderr), done.stderr
    done = quire("run", "-m", tmp_path / "out.gguf", "-p", "Hello", "-n", "2")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.gguf"]


def test_more_bits_lose_less(f32, tmp_path):
    lost = []
    for mix in "Q6_K", "Q4_K_M", "Q3_K_S", "IQ2_XS":
        assert quire("quantize", f32, tmp_path / mix, "--type", mix).returncode == 0
        lost.append(kl(tmp_path / mix, f32))
    assert lost == sorted(lost) and 0 < 10 * lost[0] < lost[-1], lost  # the logits of random weights are small


def test_bits_do_not_depend_on_threads(f32, tmp_path):
    for threads in "1", "2", "5":
        assert quire("quantize", f32, tmp_path / threads, "--type", "Q4_K_M", "-t", threads).returncode == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes() == (tmp_path / "5").read_bytes()


def test_a_tensor_that_keeps_its_type_keeps_its_bytes(f32, tmp_path):
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    assert quire("quantize", f32, first, "--type", "Q4_K_M").returncode == 0
    done = quire("quantize", first, second, "--type", "Q4_K_M")
    assert done.returncode == 0 and "quantized already" not in done.stderr
    assert first.read_bytes() == second.read_bytes()


def test_quantized_models_are_dequantized_first(f32, tmp_path):
    assert quire("quantize", f32, tmp_path / "a.gguf", "--type", "Q8_0").returncode == 0
    done = quire("quantize", tmp_path / "a.gguf", tmp_path / "b.gguf", "--type", "Q4_0")
    assert done.returncode == 0
    assert "quire: warning: 15 tensors are quantized already; they are dequantized first, so what was lost stays lost" in done.stderr


@pytest.mark.parametrize("name", ["tiny128-gptq", "tiny128-awq", "tiny128-bnb-nf4", "tiny128-fp8-block128", "llama-gptq-orders", "mixtral-gptq", "phi3-gptq", "mlx-4bit-mixed", "hqq-4bit-g64", "quark-uint4-mixed"])
def test_quantized_directories_keep_their_numbers(tmp_path, name):
    out = tmp_path / "out.gguf"
    done = quire("quantize", HF / name, out, "--type", "F32")
    assert done.returncode == 0, done.stderr
    assert "tensors are quantized already" in done.stderr
    if "mixtral" in name or not (HF / name / "tokenizer.json").exists():
        return  # without a vocabulary no text can be compared
    assert kl(out, HF / name) < 1e-6


def test_directories_become_files_with_their_vocabulary(tmp_path):
    done = quire("quantize", LLAMA, tmp_path / "out.gguf", "--type", "q8_0", "--name", "mine")
    assert done.returncode == 0, done.stderr
    report = quire_json("inspect", tmp_path / "out.gguf")
    assert report["metadata"]["general.name"] == "mine"
    assert report["metadata"]["general.file_type"] == 7


def test_the_plan_is_printed_and_nothing_written(f32, tmp_path):
    done = quire("quantize", f32, tmp_path / "out.gguf", "--type", "Q4_K_M", "--dry-run")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["tensor"] == ["from", "to", "MB", "bits"]
    assert rows["blk.0.ffn_up.weight"][:2] == ["F32", "Q4_K"]
    assert rows["blk.0.attn_norm.weight"] == ["F32", "F32", "0.00", "32"]
    assert rows["token_embd.weight"][1] == "Q6_K"  # also the output matrix
    assert list(tmp_path.iterdir()) == []
    assert quire("quantize", f32, tmp_path / "out.gguf", "--type", "Q4_K_M").returncode == 0
    assert {name: row[1] for name, row in rows.items() if name not in ("tensor", "all")} == types(tmp_path / "out.gguf")
    assert quire("quantize", f32, "--type", "Q4_K_M", "--dry-run").stdout == done.stdout


def test_flags_choose_types(f32, tmp_path):
    def chosen(*flags):
        done = quire("quantize", f32, tmp_path / "out.gguf", "--force", *flags)
        assert done.returncode == 0, done.stderr
        return types(tmp_path / "out.gguf")

    pure = chosen("--type", "Q4_K_M", "--pure")
    assert {t for name, t in pure.items() if "norm" not in name} == {"Q4_K"}
    assert chosen("--type", "Q4_0", "--token-embedding-type", "q5_1")["token_embd.weight"] == "Q5_1"
    assert chosen("--type", "Q4_0", "--output-tensor-type", "bf16")["token_embd.weight"] == "BF16"  # tied
    named = chosen("--type", "Q4_0", "--tensor-type", r"blk\.1\.ffn_.*=q8_0", "--tensor-type", "ffn_down=q6_k", "--tensor-type", "attn_[qk]=iq4_nl")
    assert named["blk.1.ffn_down.weight"] == "Q8_0" and named["blk.0.ffn_down.weight"] == "Q6_K"
    assert named["blk.0.attn_k.weight"] == "IQ4_NL" and named["blk.0.attn_v.weight"] == "Q4_0"


def test_shapes_that_a_type_cannot_take_fall_back(tmp_path):
    done = quire("quantize", HF / "tiny128-gptq", tmp_path / "out.gguf", "--type", "Q4_K_S")
    assert done.returncode == 0, done.stderr
    assert re.search(r"quire: warning: \d+ tensors with rows of 128 become Q5_0: Q4_K needs a multiple of 256", done.stderr), done.stderr
    assert types(tmp_path / "out.gguf")["blk.0.attn_q.weight"] == "Q5_0"


def test_the_report_has_every_tensor_and_loads_nothing(f32, tmp_path):
    out, page = tmp_path / "out.gguf", tmp_path / "page.html"
    done = quire("quantize", f32, out, "--type", "Q4_K_M", "--report", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.startswith("<!doctype html>") and text.endswith("</body></html>\n")
    for loads in "<script", "src=", "href=", "url(", "@import", "http":
        assert loads not in text
    table = text[text.index("All tensors"):]
    rows = {cells[0]: cells[1:] for cells in (re.findall(r"<td>(.*?)</td>", row) for row in table.split("<tr>")) if cells}
    assert {name: row[1] for name, row in rows.items()} == types(out)
    errors = {name: 0.0 if row[4] == "exact" else float(row[4].removesuffix(" %")) for name, row in rows.items()}
    assert all((errors[name] == 0) == (row[1] == "F32") for name, row in rows.items())
    four = [errors[name] for name, row in rows.items() if row[1] == "Q4_K"]
    six = [errors[name] for name, row in rows.items() if row[1] == "Q6_K"]
    assert 0.1 < max(six) < min(four) < 10 and max(four) < 12  # per cent
    without = tmp_path / "without.gguf"
    assert quire("quantize", f32, without, "--type", "Q4_K_M").returncode == 0
    assert without.read_bytes() == out.read_bytes()


# Importance matrices, in llama.cpp's older form: counts and floats.

def imatrix(path, entries, chunks=3, text=b"some text"):
    out = struct.pack("<i", len(entries))
    for name, values in entries.items():
        out += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 1, len(values)) + struct.pack(f"<{len(values)}f", *values)
    path.write_bytes(out + struct.pack("<i", chunks) + struct.pack("<i", len(text)) + text)
    return path


def every_entry(f32, value=lambda i: 1 + i % 7):
    tensors = quire_json("inspect", f32, "--tensors")["tensors"]
    return {t["name"]: [value(i) for i in range(t["shape"][-1])] for t in tensors if t["name"].startswith("blk") and "norm" not in t["name"]}


def test_an_importance_matrix_changes_the_file_and_is_named_in_it(f32, tmp_path):
    with_it, without = tmp_path / "a.gguf", tmp_path / "b.gguf"
    matrix = imatrix(tmp_path / "m.dat", every_entry(f32))
    done = quire("quantize", f32, with_it, "--type", "Q4_K_S", "--imatrix", matrix)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    assert quire("quantize", f32, without, "--type", "Q4_K_S").returncode == 0
    assert with_it.stat().st_size - without.stat().st_size < 4096
    metadata = quire_json("inspect", with_it)["metadata"]
    assert metadata["quantize.imatrix.file"] == str(matrix) and metadata["quantize.imatrix.dataset"] == "some text"
    assert metadata["quantize.imatrix.entries_count"] == 14 and metadata["quantize.imatrix.chunks_count"] == 3
    again = tmp_path / "c.gguf"  # quantizing once more does not repeat the keys
    assert quire("quantize", with_it, again, "--type", "Q8_0", "--imatrix", matrix).returncode == 0
    assert quire("inspect", again).returncode == 0


def test_importance_that_is_the_same_for_all_changes_nothing_but_the_metadata(f32, tmp_path):
    matrix = imatrix(tmp_path / "m.dat", every_entry(f32, lambda i: 5.0))
    for name, flags in ("a", ["--imatrix", matrix]), ("b", []):
        assert quire("quantize", f32, tmp_path / name, "--type", "Q6_K", *flags).returncode == 0
    a, b = (tmp_path / name for name in "ab")
    assert a.read_bytes()[-100_000:] == b.read_bytes()[-100_000:]


def test_missing_entries_are_a_warning(f32, tmp_path):
    entries = every_entry(f32)
    del entries["blk.1.attn_v.weight"]
    done = quire("quantize", f32, tmp_path / "out.gguf", "--type", "Q4_0", "--imatrix", imatrix(tmp_path / "m.dat", entries))
    assert done.returncode == 0
    assert "the importance matrix lacks 1 of 14 tensors, such as blk.1.attn_v.weight; all their inputs count the same" in done.stderr


def test_few_bits_without_importance_are_a_warning(f32, tmp_path):
    done = quire("quantize", f32, tmp_path / "out.gguf", "--type", "IQ2_XS")
    assert done.returncode == 0
    assert "types below 3.1 bits a weight without an importance matrix" in done.stderr


# What is refused

@pytest.mark.parametrize("flags, message", [
    ([], "IN"), (["in"], "--type"), (["in", "--type", "Q4_0"], "OUT"),
    (["in", "out", "--type", "Q4_9"], "Q4_9 is not a type or mix of types. Did you mean Q4_1? There are F32, F16"),
    (["in", "out", "--type", ""], "is not a type or mix"),
    (["in", "out", "--type", "Q8_K"], "Q8_K is not a type or mix"),
    (["in", "out", "--type", "Q4_0", "--output-tensor-type", "q4_x"], "q4_x is not a weight type"),
    (["in", "out", "--type", "Q4_0", "--token-embedding-type", "i32"], "i32 is not a weight type"),
    (["in", "out", "--type", "Q4_0", "--tensor-type", "ffn_down"], "ffn_down is not PATTERN=TYPE"),
    (["in", "out", "--type", "Q4_0", "--tensor-type", "=q4_0"], "=q4_0 is not PATTERN=TYPE"),
    (["in", "out", "--type", "Q4_0", "--tensor-type", "ffn_down="], "ffn_down= is not PATTERN=TYPE"),
    (["in", "out", "--type", "Q4_0", "--tensor-type", "ffn_down=q99"], "q99 is not a weight type"),
    (["in", "out", "--type", "Q4_0", "--threads", "-1"], "--threads"),
    (["in", "out", "--type", "Q4_0", "--threads", "many"], "--threads"),
    (["in", "out", "more", "--type", "Q4_0"], "more"),
    (["in", "out", "--type", "Q4_0", "--pur"], "--pur"),
    (["in", "--type", "Q4_0", "--dry-run", "--report", "page.html"], "--report"),
    (["in", "out", "--method", "nf4", "--report", "page.html"], "--report"),
    (["in", "out", "--type", "Q4_0", "--report"], "--report"),
    (["in", "out", "--type", "Q4_0", "--method", "nf4"], "cannot be combined"),
    (["in", "out", "--method", "nf4", "--pure"], "cannot be combined"),
    (["in", "out", "--method", "nf4", "--imatrix", "m.dat"], "cannot be combined"),
    (["in", "out", "--method", "nf4", "--name", "x"], "cannot be combined"),
    (["in", "out", "--method", "nf5"], "nf5"),
    (["in", "out", "--type", "Q4_0", "--threads", "1025"], "--threads"),
    (["in", "out", "--type", "Q4_0", "--threads", "99999999999999999999"], "--threads"),
    (["in", "out", "--type", "Q4_0", "--calibrate", "t", "--calibration-chunks", "-2"], "--calibration-chunks"),
    (["in", "out", "--type", "Q4_0", "--calibrate", "t", "--calibration-chunks", "0"], "must be -1, for all, or at least 1, not 0"),
    (["in", "out", "--type", "Q4_0", "--calibrate", "t", "--calibration-chunks", "x"], "--calibration-chunks"),
])
def test_bad_command_lines_exit_with_2(flags, message):
    done = quire("quantize", *flags)
    assert done.returncode == 2 and done.stderr.startswith("quire: ") and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


def refused(message, *arguments, code=1, **options):
    done = quire("quantize", *arguments, **options)
    assert done.returncode == code and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""


def test_patterns_that_match_nothing_or_are_none_are_refused(f32, tmp_path):
    out = tmp_path / "out.gguf"
    refused("--tensor-type ffn_dwon=Q6_K: no tensor that can be quantized has such a name; --dry-run lists them", f32, out, "--type", "Q4_0", "--tensor-type", "ffn_dwon=q6_k")
    refused("no tensor that can be quantized has such a name", f32, out, "--type", "Q4_0", "--tensor-type", "attn_norm=q6_k")
    refused("--tensor-type (", f32, out, "--type", "Q4_0", "--tensor-type", "(=q6_k")
    assert list(tmp_path.iterdir()) == []


def test_wrong_inputs_are_refused(f32, tmp_path):
    out = tmp_path / "out.gguf"
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.gguf").write_text("not a model")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(f32.read_bytes()[:-1000])
    refused("not found", tmp_path / "missing", out, "--type", "Q4_0")
    refused("no config.json", tmp_path / "empty", out, "--type", "Q4_0")
    refused("text.gguf", tmp_path / "text.gguf", out, "--type", "Q4_0")
    refused("was it cut off?", cut, out, "--type", "Q4_0")
    refused("cannot be written as GGUF yet", GOLDEN / "models/mamba2", out, "--type", "Q4_0")
    refused("scaled or rotated, which GGUF files cannot express", HF / "modelopt-awq", out, "--type", "Q4_0")
    refused("quantized across its outputs, which cannot be written as GGUF yet", HF / "deepseek-v3-gptq", out, "--type", "Q4_0")
    assert not out.exists()


def test_weights_that_are_not_finite_are_named_with_their_row(f32, tmp_path):
    tensors = quire_json("inspect", f32, "--tensors")["tensors"]
    bad = next(t for t in tensors if t["name"] == "blk.1.attn_q.weight")
    size = f32.stat().st_size
    data = bytearray(f32.read_bytes())
    # The last tensor ends the file, so offsets count from there.
    offset = size - sum((t["bytes"] + 31) // 32 * 32 for t in tensors[tensors.index(bad):])
    struct.pack_into("<f", data, offset + 3 * bad["shape"][-1] * 4 + 8, float("inf"))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(data)
    refused("tensor blk.1.attn_q.weight, row 3 has a value that is not finite; the file is damaged", damaged, tmp_path / "out.gguf", "--type", "Q4_0")
    struct.pack_into("<f", data, offset + 3 * bad["shape"][-1] * 4 + 8, 1e30)
    damaged.write_bytes(data)
    refused("tensor blk.1.attn_q.weight, row 3 has a value that is too large for Q4_0; use bf16", damaged, tmp_path / "out.gguf", "--type", "Q4_0")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["damaged.gguf"]


def test_importance_matrices_of_other_models_and_other_files_are_refused(f32, tmp_path):
    out = tmp_path / "out.gguf"

    def refuse(message, matrix):
        refused(message, f32, out, "--type", "Q4_0", "--imatrix", matrix)

    refuse("missing", tmp_path / "missing.dat")
    refuse("is not a regular file", tmp_path)
    refuse("is not an importance matrix", GOLDEN / "README.md")
    refuse('general.type is not "imatrix"', f32)
    refuse("none of its 1 entries, such as other.weight, is a tensor of this one", imatrix(tmp_path / "m", {"other.weight": [1.0]}))
    refuse("blk.0.attn_q.weight has 256 inputs, its entry 255", imatrix(tmp_path / "m", every_entry(f32) | {"blk.0.attn_q.weight": [1.0] * 255}))
    refuse("has the sum nan", imatrix(tmp_path / "m", {"blk.0.attn_q.weight": [float("nan")] * 256}))
    refuse("has the sum -1", imatrix(tmp_path / "m", {"blk.0.attn_q.weight": [-1.0] * 256}))
    whole = imatrix(tmp_path / "m", every_entry(f32)).read_bytes()
    for size in 0, 3, 10, 40, len(whole) // 2:
        (tmp_path / "cut").write_bytes(whole[:size])
        refuse("is not an importance matrix", tmp_path / "cut")
    assert not out.exists()


def test_existing_files_and_the_input_are_kept(f32, tmp_path):
    out = tmp_path / "out.gguf"
    out.write_text("mine")
    refused("exists; overwrite it with --force or choose another name", f32, out, "--type", "Q4_0")
    assert out.read_text() == "mine"
    assert quire("quantize", f32, out, "--type", "Q4_0", "--force").returncode == 0
    before = out.read_bytes()
    (tmp_path / "link").symlink_to(out)
    refused("itself, which quantize would overwrite", out, out, "--type", "Q2_K", "--force")
    refused("itself, which quantize would overwrite", out, tmp_path / "link", "--type", "Q2_K", "--force")
    refused("itself, which quantize would overwrite", out, tmp_path / "new", "--type", "Q2_K", "--report", out, "--force")
    refused("itself, which quantize would overwrite", out, tmp_path / "new", "--target-bpw", "4", "--plan-out", out, "--force")
    refused("is not a regular file", f32, tmp_path, "--type", "Q4_0")
    refused("none/out.gguf.tmp cannot be written: No such file or directory", f32, tmp_path / "none/out.gguf", "--type", "Q4_0")
    assert out.read_bytes() == before


def test_files_to_write_must_be_different(f32, tmp_path):
    out = tmp_path / "out"
    refused("OUT and --report are the same file", f32, out, "--type", "Q4_0", "--report", out)
    refused("OUT and --plan-out are the same file", f32, out, "--target-bpw", "4", "--plan-out", tmp_path / "x/../out")
    refused("--plan-out and --report are the same file", f32, out, "--target-bpw", "4", "--plan-out", tmp_path / "a", "--report", tmp_path / "a")
    (tmp_path / "page").write_text("mine")
    refused("page exists; overwrite it with --force", f32, out, "--type", "Q4_0", "--report", tmp_path / "page")
    refused("is not a regular file", f32, out, "--type", "Q4_0", "--report", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["page"]


def test_a_full_disk_is_an_error_and_keeps_the_older_file(f32, tmp_path):
    def limit_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    out = tmp_path / "out.gguf"
    out.write_text("mine")
    refused("out.gguf could not be written: File too large", f32, out, "--type", "Q8_0", "--force", preexec_fn=limit_files)
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"] and out.read_text() == "mine"


def test_ctrl_c_leaves_nothing(tmp_path):
    skip_without_binary()
    model = tmp_path / "model.gguf"
    assert quire("synth", "--shape", "smollm2-135m", "--type", "f16", "-o", model).returncode == 0
    out = tmp_path / "out"
    out.mkdir()
    expect_interrupt_leaves_nothing(out, "quantize", model, out / "out.gguf", "--type", "IQ2_S", "-t", "1")


def test_help_lists_every_mix():
    text = re.sub(r"\s+", " ", quire("quantize", "--help").stdout)
    for mix in MIXES:
        assert f"{mix}," in text or f"{mix} " in text, mix


@needs_model
def test_error_feedback_beats_importance_alone(tmp_path):
    text = DOCS / "prefix-cache.md"
    found = {}
    for name, flags in (("importance", ["--no-feedback"]), ("feedback", [])):
        path = tmp_path / name
        done = quire("quantize", MODEL, path, "--type", "Q4_0", "--calibrate", DOCS / "serving.md", "--calibration-chunks", "12", *flags)
        assert done.returncode == 0, done.stderr
        found[name] = path.stat().st_size, quire_json("compare", "-m", path, "-b", MODEL, "-f", text, "-c", "256", "--chunks", "6")["median_kl"]
    assert found["feedback"][0] == found["importance"][0]
    assert found["feedback"][1] < 0.9 * found["importance"][1]


def test_the_output_matrix_gets_error_feedback(f32, tmp_path):
    tensor, files = "token_embd.weight", []  # a tied one
    for flags in [], ["--no-feedback"]:
        done = quire("quantize", f32, tmp_path / "out", "--type", "Q4_0", "--tensor-type", f"^{tensor}=Q4_0", "--tensor-type", ".=F16", "--calibrate", DOCS / "serving.md",
                     "--calibration-context", "64", "--calibration-chunks", "8", "--force", *flags)
        assert done.returncode == 0, done.stderr
        assert [name for name, kind in types(tmp_path / "out").items() if kind == "Q4_0"] == [tensor]
        files.append((tmp_path / "out").read_bytes())
    assert len(files[0]) == len(files[1]) and files[0] != files[1]


def test_calibrated_files_do_not_depend_on_threads(f32, tmp_path):
    files = []
    for threads in ("1", "2"):
        path = tmp_path / threads
        done = quire("quantize", f32, path, "--type", "Q3_K_M", "--calibrate", DOCS / "serving.md", "--calibration-context", "64", "--calibration-chunks", "8", "-t", threads)
        assert done.returncode == 0, done.stderr
        files.append(path.read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize(
    "flags, code, says",
    [
        (["--calibrate", "nowhere.txt"], 1, "nowhere.txt"),
        (["--calibrate", "{short}"], 1, "too few for one chunk"),
        (["--calibration-chunks", "3"], 2, "--calibrate"),
        (["--no-feedback"], 2, "--calibrate"),
        (["--calibrate", str(GOLDEN / "README.md"), "--calibration-context", "2"], 2, "--calibration-context"),
    ],
)
def test_wrong_calibrations_are_refused(f32, tmp_path, flags, code, says):
    (tmp_path / "short.txt").write_text("a few words")
    done = quire("quantize", f32, tmp_path / "out.gguf", "--type", "Q4_0", *[f.format(short=tmp_path / "short.txt") for f in flags])
    assert done.returncode == code and says in done.stderr, done.stderr
    assert not (tmp_path / "out.gguf").exists()
