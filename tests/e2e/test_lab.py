"""quire lab: its pages, figures and index, and what it refuses. tests/unit/cli/lab_counts_test.cc checks the counts."""

import os
import re
from xml.etree import ElementTree

import pytest

from conftest import ROOT, quire, quire_json

SVG = "{http://www.w3.org/2000/svg}"
CHEAP = ("kv-cache", "batching")  # of a tiny model: a second each


def listed():
    """The experiments' names, in order."""
    lines = quire("lab", "--list").stdout.splitlines()
    assert all(line.endswith("?") for line in lines)
    return [line.split()[0] for line in lines]


def lab(folder, *arguments, **options):
    return quire("lab", "--quick", "--out", folder, *arguments, **options)


@pytest.fixture(scope="module")
def pages(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab") / "new/folder"
    done = lab(folder, *CHEAP, "-m", tiny("q4_0"))
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[:-1]] == list(CHEAP)
    return folder


def test_each_experiment_has_a_page_with_its_figure(pages):
    assert sorted(file.name for file in pages.iterdir()) == ["README.md", "batching.md", "batching.svg", "kv-cache.md", "kv-cache.svg"]
    for name in CHEAP:
        text = (pages / f"{name}.md").read_text()
        assert f"![" in text and f"]({name}.svg)" in text
        assert f"`quire lab {name}` with `--quick`" in text
        # What is counted is as theory foretells; times depend on what else the machine does.
        counted = [line for line in text.splitlines() if "| counted |" in line]
        assert len(counted) >= 4 and all(line.split(" | ")[4].startswith("yes") for line in counted)


def test_figures_are_well_formed_and_show_the_runs(pages):
    root = ElementTree.parse(pages / "kv-cache.svg").getroot()
    lines = [line.get("points").split() for line in root.iter(SVG + "polyline")]
    assert len(lines) == 2 and len(lines[0]) == len(lines[1]) == 96  # a point for each token
    root = ElementTree.parse(pages / "batching.svg").getroot()
    answers = [rect for rect in root.iter(SVG + "rect") if re.fullmatch("s[0-5]", rect.get("class"))]
    assert len(answers) == 2 * 24  # of both schedulers


def test_the_index_has_a_line_of_result_for_each(pages, tiny):
    def rows():
        return dict(re.findall(r"^\| \[.*\]\((.*)\.md\) \| (.*) \|$", (pages / "README.md").read_text(), re.M))

    before = rows()
    assert sorted(before) == sorted(CHEAP) and all(re.search(r"\d", text) for text in before.values())
    assert lab(pages, "paging", "-m", tiny("q4_0")).returncode == 0
    after = rows()
    assert after.pop("paging") and after == before  # those of earlier runs stay


def test_numbers_as_json(tmp_path, tiny):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = lab(tmp_path / "lab", "window", "--json", "-m", tiny("q4_0"), env={**os.environ, "TMPDIR": str(scratch)})
    assert done.returncode == 0, done.stderr
    assert list(scratch.iterdir()) == []  # its models are gone
    result = quire_json("lab", "--quick", "--out", tmp_path / "lab", "batching", "-m", tiny("q4_0"))
    (experiment,) = result["experiments"]
    numbers = {number["what"]: number for number in experiment["numbers"]}
    assert numbers["steps, continuous"]["value"] < numbers["steps, static"]["value"] == numbers["steps, static"]["foretold"]
    assert result["machine"]["quick"] and experiment["figures"] == ["batching.svg"]


def test_paging_takes_traces(tmp_path, tiny):
    trace = tmp_path / "azure.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:17:03.9799600,100,29\n" * 40 + "2023-11-16 18:17:04.0,1000,24\n")
    done = lab(tmp_path / "lab", "paging", "--trace", trace, "-m", tiny("q4_0"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "lab/paging.md").read_text()
    assert "The first 41 requests of the trace" in page and "the longest request, 1,024 tokens" in page
    trace.write_text("not a trace\n")
    done = lab(tmp_path / "lab", "paging", "--trace", trace, "-m", tiny("q4_0"))
    assert done.returncode == 1 and f"{trace}:1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pagin"], 2, "unknown experiment 'pagin'. Did you mean paging?"),
        (["--out"], 2, "--out needs a value"),
        (["-t", "-1"], 2, "--threads must be between"),
        (["--max-model-len", "12"], 2, "unknown flag --max-model-len"),
        (["paging", "-m", "/no/such/model"], 1, "not found"),
        (["paging", "--out", "/dev/null"], 1, "--out /dev/null is not a folder"),
        (["paging", "--trace", "/no/such/trace"], 1, "--trace /no/such/trace"),
        (["speculation"], 1, "need a context of 1024 tokens"),
    ],
)
def test_refuses(arguments, code, message, tmp_path, tiny):
    model = [] if "-m" in arguments else ["-m", tiny("q4_0")]
    done = quire("lab", *model, *arguments, cwd=tmp_path)
    assert done.returncode == code and message in done.stderr, done.stderr


def test_does_not_replace_what_it_did_not_write(tmp_path, tiny):
    (tmp_path / "README.md").write_text("# My project\n")
    done = lab(tmp_path, "paging", "-m", tiny("q4_0"))
    assert done.returncode == 1 and "did not write" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


def test_the_documented_lab_has_exactly_the_experiments():
    pages = ROOT / "docs/lab"
    assert sorted(file.stem for file in pages.glob("*.md")) == sorted([*listed(), "README"])
    index = (pages / "README.md").read_text()
    assert re.findall(r"^\| \[.*\]\((.*)\.md\) \|", index, re.M) == listed()
    figures = {figure for file in pages.glob("*.md") for figure in re.findall(r"\]\(([\w-]+\.svg)\)", file.read_text())}
    assert figures == {file.name for file in pages.glob("*.svg")}
    for figure in figures:
        ElementTree.parse(pages / figure)
