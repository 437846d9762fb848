"""Mixtures of experts that are larger than memory: --expert-memory, the file of experts, and what users see of it."""

import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from conftest import QUIRE, Server, quire, quire_json

ASK = ("run", "--temp", "0", "-n", "8", "--json", "-p", "abc", "--tune", "off")


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """8 experts in each of 4 layers, two used."""
    path = tmp_path_factory.mktemp("mixture") / "tiny-moe.gguf"
    done = quire("synth", "--shape", "tiny-moe", "--type", "q4_0", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def ask(model, *flags):
    done = quire(*ASK, "-m", model, *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["text"], done.stderr


def fewest_slots(model):
    """Bytes of the experts that a token chooses in a layer."""
    done = quire(*ASK, "-m", model, "--expert-memory", "1")
    return re.search(r"experts that a token chooses in a layer need (\d+); raise it", done.stderr).group(1)


@pytest.mark.parametrize("value", ["0", "-1", "x", "1e3", "all,", "", "4 GB x", "1" * 16, "0GiB"])
def test_a_bad_size_is_a_bad_command_line(mixture, value):
    done = quire(*ASK, "-m", mixture, f"--expert-memory={value}")
    assert done.returncode == 2 and "--expert-memory" in done.stderr, done.stderr


def test_sizes_that_cannot_be_honoured_are_refused(mixture, tiny):
    done = quire(*ASK, "-m", mixture, "--expert-memory", "64")
    assert done.returncode == 1 and re.search(r"--expert-memory is 64 bytes, but the \d+ experts that a token chooses", done.stderr), done.stderr
    done = quire(*ASK, "-m", tiny("q4_k"), "--expert-memory", "1GiB")
    assert done.returncode == 1 and "has no experts; leave it out" in done.stderr, done.stderr
    assert quire(*ASK, "-m", tiny("q4_k"), "--expert-memory", "all").returncode == 0


def test_the_pack_cache_keeps_the_experts(mixture, tmp_path):
    expected, _ = ask(mixture)
    flags = ("--expert-memory", fewest_slots(mixture), "--pack-cache", str(tmp_path / "packs"))
    for _ in range(2):
        text, _ = ask(mixture, *flags)
        assert text == expected
        files = sorted(path.name for path in (tmp_path / "packs").iterdir())
        assert len(files) == 2 and files[0].endswith(".experts") != files[1].endswith(".experts"), files


def test_a_pack_cache_that_cannot_be_written_is_done_without(mixture, tmp_path):
    (tmp_path / "packs").write_text("a file")
    expected, _ = ask(mixture)
    text, log = ask(mixture, "--expert-memory", fewest_slots(mixture), "--pack-cache", str(tmp_path / "packs"))
    assert text == expected
    assert "The experts go to a file without a name" in log and "Not a directory" in log, log


def test_a_full_disk_is_done_without(mixture, tmp_path):
    mounted = tmp_path / "small"
    mounted.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mounted], capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        expected, _ = ask(mixture)
        text, log = ask(mixture, "--expert-memory", fewest_slots(mixture), "--pack-cache", str(mounted))
        assert text == expected
        assert "No space left on device; free some space" in log, log
        assert not list(mounted.iterdir())
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_metrics_count_reads(mixture):
    running = Server("--expert-memory", fewest_slots(mixture), "--tune", "off", model=mixture, name="mixture")
    try:
        body = json.dumps({"prompt": "abc", "max_tokens": 8, "ignore_eos": True}).encode()
        urllib.request.urlopen(urllib.request.Request(running.url + "/completions", body, {"Content-Type": "application/json"})).read()
        metrics = urllib.request.urlopen(running.base + "/metrics").read().decode()
        values = {name: float(re.search(rf"^quire:expert_{name}_total{{[^}}]*}} (\S+)$", metrics, re.M).group(1))
                  for name in ("hits", "reads", "read_bytes", "read_seconds", "wait_seconds")}
        assert values["reads"] > 0 and values["read_bytes"] > 64 * values["reads"], values
        assert values["read_seconds"] > 0 and values["wait_seconds"] > 0, values
    finally:
        code, log = running.stop()
    assert code == 0, log
    assert re.search(r"memory: experts +\d+ MiB +\d+ of \d+ at a time, the others are read from a file \(--expert-memory\)", log), log
    assert re.search(r"experts: \d+ of \d+ in memory at a time, in \d+ MiB; the others are read from an unnamed file in ", log), log


def test_bench_compares_with_the_disk(mixture):
    flags = ("bench", "-m", mixture, "--expert-memory", fewest_slots(mixture), "-p", "16", "-n", "8", "-r", "2", "--tune", "off")
    for result in quire_json(*flags)["results"]:
        experts = result["experts"]
        assert experts["reads"] > 0 and experts["bytes_read"] > 0
        assert experts["bytes_per_token"] == pytest.approx(experts["bytes_read"] / (2 * result["tokens"]))
        assert experts["limit_tokens_per_second"] == pytest.approx(experts["bytes_per_second"] / experts["bytes_per_token"])
        assert 0 < experts["waiting"] < 1
    table = quire(*flags).stdout
    assert "the others are read from a file" in table and "limit tok/s" in table, table
    assert "experts" not in quire("bench", "-m", mixture, "-p", "16", "-n", "8", "-r", "1", "--tune", "off").stdout


@pytest.fixture(scope="module")
def large():
    """A mixture of 16 experts a layer, two used: 0.6 GB."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        model = f"{folder}/moe.gguf"
        done = quire("synth", "--shape", "moe-16x", "--type", "q4_0", "-o", model, timeout=600)
        assert done.returncode == 0, done.stderr
        yield model


def measured(*arguments):
    """The text, and the largest resident memory of the process in MiB. (That of wait4 counts this one's, too, which it was forked from.)"""
    process = subprocess.Popen([str(QUIRE), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    status, most = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        found = re.search(r"VmHWM:\s+(\d+)", status.read_text())
        most = int(found.group(1)) >> 10 if found else most
        time.sleep(0.01)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads(output)["text"], most


@pytest.mark.parametrize("pack_cache", [True, False])
def test_a_mixture_larger_than_memory_runs_within_it(large, tmp_path, pack_cache):
    prompt = "A long prompt chooses all experts of a layer. " * 8
    flags = ("run", "-m", large, "--temp", "0", "-n", "24", "-p", prompt, "--json", "--tune", "off", "--max-num-seqs", "4", "-c", "1024")
    expected, whole = measured(*flags, "--expert-memory", "all")
    assert whole > 600
    few = (*flags, "--memory", "300MiB", *(("--pack-cache", tmp_path) if pack_cache else ()))
    for _ in range(2):
        text, most = measured(*few)
        assert text == expected
        assert most <= 300
    refused = quire(*few, "--expert-memory", "all")
    assert refused.returncode == 1 and "300 MiB of memory are available, but" in refused.stderr, refused.stderr
