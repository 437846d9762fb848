"""quire quantize --target-bpw and --plan: types by what they cost in the model's output."""

import json
import re

import pytest

from conftest import GOLDEN, expect_interrupt_leaves_nothing, quire, quire_json, skip_without_binary

LLAMA = GOLDEN / "models/llama"
DOCS = GOLDEN.parents[2] / "docs"
SMALL = ["--target-context", "32"]


@pytest.fixture(scope="module")
def f32(tiny):
    return tiny("f32")


@pytest.fixture(scope="module")
def planned(f32, tmp_path_factory):
    """A file of 4.3 bits a weight, its plan, and the output of the command."""
    folder = tmp_path_factory.mktemp("planned")
    done = quire("quantize", f32, folder / "out.gguf", "--target-bpw", "4.3", "--plan-out", folder / "plan.json", *SMALL)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["out.gguf", "plan.json"]
    return folder / "out.gguf", folder / "plan.json", done


def types(path):
    return {t["name"]: t["type"] for t in quire_json("inspect", path, "--tensors")["tensors"]}


def bits(path):
    tensors = quire_json("inspect", path, "--tensors")["tensors"]
    elements = 0
    for tensor in tensors:
        count = 1
        for extent in tensor["shape"]:
            count *= extent
        elements += count
    return 8 * sum(t["bytes"] for t in tensors) / elements


def kl(model, base):
    return quire_json("compare", "-m", model, "-b", base, "-f", GOLDEN / "README.md", "-c", "64", "--chunks", "4", "--activations", "f32", "--kv-cache-dtype", "f32")["mean_kl"]["value"]


def test_the_file_has_at_most_the_bits_and_the_types_of_its_plan(planned):
    out, plan, done = planned
    assert 4.2 < bits(out) <= 4.3
    groups = json.loads(plan.read_text())["groups"]
    by_plan = {tensor: group["type"] for group in groups for tensor in group["tensors"]}
    assert by_plan == {name: kind for name, kind in types(out).items() if "norm" not in name}
    assert re.search(r"^measuring \d+ groups of matrices in up to 2 types each on 4 chunks of 32 tokens: at most \d+ passes and \d+ tokens, about ", done.stderr)
    assert re.search(r"wrote .*out.gguf: types by plan, 20 tensors, [\d.]+ MB, 4\.\d+ bits a weight\n$", done.stderr)


def test_the_plan_is_printed(planned):
    _, plan, done = planned
    saved = json.loads(plan.read_text())
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["group", "type", "bits", "MB", "KL", "one", "smaller", "one", "larger"]
    assert len(lines) == 1 + len(saved["groups"]) + 1
    for line, group in zip(lines[1:], saved["groups"]):
        chosen = next(c for c in group["choices"] if c["type"] == group["type"])
        how = "measured" if chosen["measured"] else "scaled"
        assert line.startswith(group["name"]) and f" {group['type']} " in line and f"{chosen['divergence']:.6f}" in line and how in line
    assert lines[-1].split()[:1] == ["all"] and f"{saved['divergence']:.6f}" in lines[-1]


def test_measured_divergences_are_those_of_a_file_with_that_group_alone(f32, planned, tmp_path):
    text = GOLDEN / "README.md"
    done = quire("quantize", f32, "--dry-run", "--target-bpw", "4.3", "--plan-out", tmp_path / "plan.json", "--calibrate", text, "--calibration-chunks", "1",
                 "--calibration-context", "64", "--target-context", "64", "--target-chunks", "2", "--no-feedback")
    assert done.returncode == 0, done.stderr
    group = next(g for g in json.loads((tmp_path / "plan.json").read_text())["groups"] if g["name"] == "token_embd")  # others hardly change the output of random weights
    choice = max((c for c in group["choices"] if c["measured"]), key=lambda c: c["divergence"])
    flags = ["--calibrate", text, "--calibration-chunks", "1", "--calibration-context", "64", "--no-feedback"]
    done = quire("quantize", f32, tmp_path / "one.gguf", "--type", "F32", "--tensor-type", f"{group['tensors'][0]}={choice['type']}", *flags)
    assert done.returncode == 0, done.stderr
    # compare reads the first chunks, from the same first position; the probe read the second and third.
    compared = quire_json("compare", "-m", tmp_path / "one.gguf", "-b", f32, "-f", text, "-c", "64", "--chunks", "3", "--from", "16", "--activations", "f32", "--kv-cache-dtype", "f32")
    first = quire_json("compare", "-m", tmp_path / "one.gguf", "-b", f32, "-f", text, "-c", "64", "--chunks", "1", "--from", "16", "--activations", "f32", "--kv-cache-dtype", "f32")
    expected = (3 * compared["mean_kl"]["value"] - first["mean_kl"]["value"]) / 2
    assert choice["divergence"] == pytest.approx(expected, rel=0.02)


def test_a_plan_gives_the_same_file_and_measures_nothing(f32, planned, tmp_path):
    out, plan, _ = planned
    done = quire("quantize", f32, tmp_path / "again.gguf", "--plan", plan)
    assert done.returncode == 0 and "measuring" not in done.stderr, done.stderr
    assert (tmp_path / "again.gguf").read_bytes() == out.read_bytes()


def test_a_plan_serves_other_targets(f32, planned, tmp_path):
    _, plan, _ = planned
    lost = []
    for target in 5.5, 4.3, 3.5:
        path = tmp_path / f"{target}.gguf"
        done = quire("quantize", f32, path, "--plan", plan, "--target-bpw", target, "--plan-out", tmp_path / f"{target}.json")
        assert done.returncode == 0 and "measuring" not in done.stderr, done.stderr
        assert target - 0.15 < bits(path) <= target
        lost.append(kl(path, f32))
    assert lost == sorted(lost) and lost[0] > 0
    assert json.loads((tmp_path / "4.3.json").read_text()) == json.loads(plan.read_text())


def test_the_plan_does_not_depend_on_threads(f32, planned, tmp_path):
    for threads in "1", "3":
        done = quire("quantize", f32, "--dry-run", "--target-bpw", "4.3", "--plan-out", tmp_path / threads, "-t", threads, *SMALL)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / threads).read_text()) == json.loads(planned[1].read_text())


def test_directories_and_quantized_files_can_be_planned(f32, tmp_path):
    done = quire("quantize", LLAMA, tmp_path / "a.gguf", "--target-bpw", "4.6", *SMALL)
    assert done.returncode == 0 and bits(tmp_path / "a.gguf") <= 4.6, done.stderr
    assert quire("quantize", f32, tmp_path / "q.gguf", "--type", "Q4_K_S", "--pure").returncode == 0
    done = quire("quantize", tmp_path / "q.gguf", tmp_path / "b.gguf", "--target-bpw", "4.51", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "exact" in done.stdout and kl(tmp_path / "b.gguf", tmp_path / "q.gguf") < 1e-6  # all that is kept fits


@pytest.mark.parametrize("name", ["models/deepseek_v3", "models/olmoe", "models/falcon", "models-gguf/glm4_moe.gguf", "models-gguf/granitemoehybrid.gguf", "models-gguf/qwen2.gguf"])
def test_groups_of_all_kinds_of_models_are_measured(tmp_path, name):
    done = quire("quantize", GOLDEN / name, tmp_path / "out.gguf", "--target-bpw", "6", "--plan-out", tmp_path / "plan.json", "--target-context", "16", "--target-chunks", "1")
    assert done.returncode == 0 and bits(tmp_path / "out.gguf") <= 6, done.stderr
    groups = json.loads((tmp_path / "plan.json").read_text())["groups"]
    lossy = [g for g in groups if any(c["error"] > 0 for c in g["choices"])]
    measured = [c["divergence"] for g in lossy for c in g["choices"] if c["measured"]]
    assert len(measured) >= len(lossy) > 5 and sum(d > 1e-9 for d in measured) > 0.8 * len(measured)


def test_it_loses_less_than_one_type_for_all(f32, tmp_path):
    flags = ["--calibrate", DOCS / "serving.md", "--calibration-context", "64", "--calibration-chunks", "16", "--no-feedback"]  # random weights leave feedback nothing to learn
    assert quire("quantize", f32, tmp_path / "pure.gguf", "--type", "IQ4_XS", "--pure", *flags).returncode == 0
    done = quire("quantize", f32, tmp_path / "planned.gguf", "--target-bpw", bits(tmp_path / "pure.gguf"), "--target-context", "64", *flags)
    assert done.returncode == 0, done.stderr
    assert bits(tmp_path / "planned.gguf") <= bits(tmp_path / "pure.gguf")
    assert kl(tmp_path / "planned.gguf", f32) < kl(tmp_path / "pure.gguf", f32)


def test_ctrl_c_leaves_nothing(tmp_path):
    skip_without_binary()
    model = tmp_path / "model.gguf"
    assert quire("synth", "--shape", "smollm2-135m", "--type", "f16", "-o", model).returncode == 0
    out = tmp_path / "out"
    out.mkdir()
    expect_interrupt_leaves_nothing(out, "quantize", model, out / "out.gguf", "--target-bpw", "5", "-t", "1")


@pytest.mark.parametrize("flags, message", [
    (["in", "out", "--target-bpw", "0.5"], "--target-bpw"),
    (["in", "out", "--target-bpw", "33"], "--target-bpw"),
    (["in", "out", "--target-bpw", "nan"], "--target-bpw"),
    (["in", "out", "--target-bpw", "four"], "--target-bpw"),
    (["in", "out", "--target-bpw", "4", "--type", "Q4_0"], "cannot be combined"),
    (["in", "out", "--target-bpw", "4", "--pure"], "cannot be combined"),
    (["in", "out", "--target-bpw", "4", "--method", "nf4"], "cannot be combined"),
    (["in", "out", "--target-bpw", "4", "--output-tensor-type", "q8_0"], "cannot be combined"),
    (["in", "out", "--target-bpw", "4", "--token-embedding-type", "q8_0"], "cannot be combined"),
    (["in", "out", "--target-bpw", "4", "--tensor-type", "ffn=q8_0"], "cannot be combined"),
    (["in", "out", "--plan", "p.json", "--type", "Q4_0"], "cannot be combined"),
    (["in", "out", "--plan", "p.json", "--target-chunks", "3"], "--target-chunks"),
    (["in", "out", "--type", "Q4_0", "--plan-out", "p.json"], "--target-bpw"),
    (["in", "out", "--target-bpw", "4", "--target-chunks", "0"], "--target-chunks"),
    (["in", "out", "--target-bpw", "4", "--target-context", "7"], "--target-context"),
    (["in", "--target-bpw", "4"], "OUT"),
])
def test_bad_command_lines_exit_with_2(flags, message):
    done = quire("quantize", *flags)
    assert done.returncode == 2 and done.stderr.startswith("quire: ") and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""


def change(plan, what):
    plan = json.loads(plan.read_text())
    what(plan["groups"])
    return json.dumps(plan)


@pytest.mark.parametrize("what, flags, message", [
    (lambda groups: groups.pop(), [], "is another model's plan: it has no type for"),
    (lambda groups: groups.append({"tensors": ["other.weight"], "type": "Q8_0"}), [], "other.weight"),
    (lambda groups: groups[0].update(type="Q8_K", choices=[{"type": "Q8_K", "bytes": 1, "error": 0, "divergence": 0}]), [], "cannot be written as Q8_K"),
    (lambda groups: groups[0].update(type="Q9_K"), [], '"Q9_K" is not a type of GGUF files'),
    (lambda groups: [g.pop("choices") for g in groups], ["--target-bpw", "4"], "has no sizes to choose from"),
    (lambda groups: groups[1]["tensors"].append(groups[0]["tensors"][0]), [], "is named twice"),
    (lambda groups: groups[0]["choices"].clear(), [], "is not among the choices"),
    (lambda groups: None, ["--target-bpw", "1.2"], "--target-bpw 1.2 is too low: the smallest types of all matrices take "),
])
def test_wrong_plans_are_refused(f32, planned, tmp_path, what, flags, message):
    (tmp_path / "plan.json").write_text(change(planned[1], what))
    done = quire("quantize", f32, tmp_path / "out.gguf", "--plan", tmp_path / "plan.json", *flags)
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_wrong_files_and_targets_are_refused(f32, tmp_path):
    out = tmp_path / "out.gguf"

    def refuse(message, *flags):
        done = quire("quantize", f32, out, *flags)
        assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr

    (tmp_path / "short.txt").write_text("a few words")
    refuse("missing.json", "--plan", tmp_path / "missing.json")
    refuse("is not a plan of types", "--plan", LLAMA / "config.json")
    refuse("is too low: the smallest types of all matrices take ", "--target-bpw", "1.5")
    refuse("too few for one chunk", "--target-bpw", "4", "--calibrate", tmp_path / "short.txt")
    refuse("exists; overwrite it with --force", "--target-bpw", "4", "--plan-out", tmp_path / "short.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["short.txt"]
