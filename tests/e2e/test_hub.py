"""Models of the hub, of Ollama and of URLs, from a hub on this machine (local_hub.py)."""

import hashlib
import http.client
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pytest
from conftest import GOLDEN, QUIRE, ROOT, Server, eventually, quire, skip_without_binary
from local_hub import COMMIT, Repo, local_hub

LARGE = 40 << 20  # three pieces of 16 MiB


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """A model of random weights, which runs."""
    skip_without_binary()
    path = tmp_path_factory.mktemp("hub") / "tiny.gguf"
    done = quire("synth", "--shape", "tiny", "--type", "q4_0", "-o", path)
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


@pytest.fixture(scope="module")
def large():
    return os.urandom(1 << 20) * (LARGE >> 20)


@pytest.fixture
def hub():
    with local_hub() as running:
        yield running


@pytest.fixture
def home(hub, tmp_path, monkeypatch):
    """An empty home folder whose hub is ours."""
    for variable in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "OLLAMA_", "XDG_")) or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("QUIRE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    return tmp_path


def repo_folder(home, name="org/tiny"):
    return home / ".cache/huggingface/hub" / ("models--" + name.replace("/", "--"))


def pull(name, *flags, code=0, **options):
    done = quire("pull", name, *flags, **options)
    assert done.returncode == code, done.stderr
    return done


def refusal(name, *flags):
    """The message for a model that cannot be downloaded."""
    done = pull(name, *flags, code=1)
    assert done.stdout == ""
    return done.stderr


def partial_files(home):
    return sorted(path.name for path in home.rglob("*.quire.*"))


# ---- what can be asked for -------------------------------------------------------------------------------------------


def test_run_downloads_a_model_once(hub, home, gguf):
    hub.repos["org/tiny"] = Repo({"README.md": b"# tiny", "tiny-Q4_0.gguf": gguf, "mmproj-tiny.gguf": b"no model"})
    arguments = ["run", "-m", "hf:org/tiny", "-p", "hello", "--raw", "-n", "4", "-s", "1", "-q"]
    first = quire(*arguments)
    assert first.returncode == 0, first.stderr
    assert "hf:org/tiny: Q4_0 (the only GGUF file)" in first.stderr
    link = repo_folder(home) / "snapshots" / COMMIT / "tiny-Q4_0.gguf"
    assert os.readlink(link) == "../../blobs/" + hashlib.sha256(gguf).hexdigest()
    assert (repo_folder(home) / "refs/main").read_text() == COMMIT
    assert partial_files(home) == []
    hub.requests.clear()
    again = quire(*arguments)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert hub.requests == []  # what is there needs no connection
    for command in (["inspect"], ["plan"], ["tokenize", "-p", "x", "-m"], ["show"]):
        done = quire(*command, "hf:org/tiny")
        assert done.returncode == 0, done.stderr
    assert hub.requests == []


def test_serve_has_the_names_that_were_asked_for(hub, home, gguf):
    hub.repos["org/tiny"] = Repo({"tiny-Q4_0.gguf": gguf})
    command = [QUIRE, "serve", "-m", "hf:org/tiny:q4_0", "--port", "0", "--max-model-len", "256", "--memory", "1GiB"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        url = re.search(r"http://\S+", line).group()
        names = [model["id"] for model in json.load(urllib.request.urlopen(url + "/models"))["data"]]
        assert names[:1] == ["tiny-Q4_0"] and {"org/tiny", "hf:org/tiny:q4_0"} <= set(names)
    finally:
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=60)[1]
    assert "downloading tiny-Q4_0.gguf" in log


@pytest.mark.parametrize(
    "choice, file",
    [("", "x-Q4_K_M.gguf"), (":q8_0", "x-Q8_0.gguf"), (":IQ2_XS", "small/x-iq2_xs.gguf"), (":x-Q8_0.gguf", "x-Q8_0.gguf")],
)
def test_a_quantization_is_chosen(hub, home, choice, file):
    names = ["x-Q8_0.gguf", "x-Q4_K_M.gguf", "small/x-iq2_xs.gguf", "mmproj-x-f16.gguf"]
    hub.repos["org/x"] = Repo({name: name.encode() for name in names})
    done = pull("hf:org/x" + choice)
    assert done.stdout.strip() == str(repo_folder(home, "org/x") / "snapshots" / COMMIT / file)
    if not choice:
        assert "hf:org/x: Q4_K_M (the usual choice; others: IQ2_XS, Q8_0)" in done.stderr
    assert hub.count("mmproj") == 0


def test_a_split_file_comes_whole(hub, home):
    parts = {f"Q4_K_M/x-Q4_K_M-0000{i}-of-00003.gguf": b"part %d" % i for i in (1, 2, 3)}
    hub.repos["org/x"] = Repo(parts | {"x-Q8_0.gguf": b"other"})
    done = pull("hf:org/x")
    first = done.stdout.strip()
    assert first.endswith("x-Q4_K_M-00001-of-00003.gguf")
    assert [open(first.replace("00001-of", f"0000{i}-of"), "rb").read() for i in (1, 2, 3)] == list(parts.values())
    del hub.repos["org/x"].files["Q4_K_M/x-Q4_K_M-00002-of-00003.gguf"]
    hub.repos["org/x"].commit = COMMIT[::-1]
    assert "is split into 3 files, of which the repository has 2" in refusal("hf:org/x:q4_k_m")


def test_a_directory_of_safetensors(hub, home):
    model = GOLDEN / "models/llama"
    files = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}
    hub.repos["org/llama"] = Repo(files | {"pytorch_model.bin": b"pickle", "onnx/model.onnx": b"no", "README.md": b"text"})
    done = pull("hf:org/llama")
    folder = done.stdout.strip()
    assert folder == str(repo_folder(home, "org/llama") / "snapshots" / COMMIT)
    assert hub.count("pytorch|onnx|README") == 0
    shown = json.loads(quire("show", "hf:org/llama", "--json").stdout)
    assert shown["path"] == folder and shown["runs"]["ok"] and shown["revision"] == COMMIT
    assert quire("inspect", "hf:org/llama").returncode == 0


def test_ollama_shares_the_store_of_ollama(hub, home, gguf):
    hub.add_ollama_model("library/tiny", "latest", gguf, template=b"{{ .Prompt }}", params=b"{}")
    hub.add_ollama_model("library/tiny", "copy", gguf)
    name = f"ollama:{hub.host}/library/tiny"
    done = pull(name)
    assert "it does not read Ollama's template, params" in done.stderr
    store = home / ".ollama/models"
    digest = hashlib.sha256(gguf).hexdigest()
    assert (store / "blobs" / f"sha256-{digest}").read_bytes() == gguf
    assert json.loads((store / f"manifests/{hub.host}/library/tiny/latest").read_text())["schemaVersion"] == 2
    hub.requests.clear()
    done = quire("run", "-m", name, "-p", "x", "--raw", "-n", "2", "-s", "1", "-q")
    assert done.returncode == 0 and hub.requests == [], done.stderr
    pull(name + ":copy")
    assert hub.count(digest) == 0  # the blob was there
    # A blob that two tags use goes with the second.
    assert quire("rm", name, "--yes").returncode == 0
    assert (store / "blobs" / f"sha256-{digest}").exists()
    assert quire("rm", name + ":copy", "--yes").returncode == 0
    assert list((store / "blobs").iterdir()) == []
    assert "has no such model or tag" in refusal(name + ":none")


def test_a_url(hub, home, gguf):
    hub.files["tiny.gguf"] = gguf
    url, sha256 = f"{hub.url}/files/tiny.gguf", hashlib.sha256(gguf).hexdigest()
    done = pull(url)
    assert f"its SHA-256 is {sha256}" in done.stderr
    assert quire("inspect", url).returncode == 0
    assert url in quire("list").stdout
    hub.requests.clear()
    pull(f"{url}#sha256={sha256}")
    assert hub.count("tiny", "GET") == 0  # the same ETag
    other = f"{url}#sha256={'0' * 64}"
    assert "was downloaded with the SHA-256" in quire("inspect", other).stderr
    assert "arrived damaged" in refusal(other)
    assert open(done.stdout.strip(), "rb").read() == gguf  # what was there stays
    hub.files["tiny.gguf"] = gguf + b"more"
    newer = pull(url).stdout.strip()
    assert os.path.getsize(newer) == len(gguf) + 4
    assert quire("rm", url, "--yes").returncode == 0
    assert "arrived damaged" in refusal(f"{url}#sha256={'0' * 64}")
    assert "HTTP 404; there is no such file" in refusal(f"{hub.url}/files/none.gguf")


# ---- what can go wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, message",
    [
        ("hf:org/../etc", "is not the name of a repository"),
        ("hf:org/a/b", "is not the name of a repository"),
        ("hf:org/x--y", "is not the name of a repository"),
        ("hf:org/x@../main", "is not a revision"),
        ("hf:org/x:../../x.gguf", "is neither a quantization nor the path of a file"),
        ("hf:org/x:/etc/x.gguf", "is neither a quantization nor the path of a file"),
        ("ollama:a/b/c/d", "is not the name of an Ollama model"),
        ("ollama:x:../y", "is not the name of an Ollama model"),
        ("http://example.com/x.gguf", "is not encrypted"),
        ("https://user:password@example.com/x.gguf", "must not contain a user or a password"),
        ("https://huggingface.co/org/x/discussions", "is a page of the hub without a model"),
        ("https://example.com/x.zip", "does not name a GGUF file"),
        ("smollm2", "./dev fetch smollm2"),
        ("file:///etc/passwd", "cannot be downloaded; pass hf:ORG/REPO"),
    ],
)
def test_bad_names(home, name, message):
    assert message in refusal(name)


def test_paths_that_lead_out_of_the_repository(hub, home):
    for path in ("../../../.bashrc.gguf", "/etc/x.gguf", "a//b.gguf", "a/./b.gguf", "a\\b.gguf"):
        hub.repos["org/x"] = Repo({path: b"evil"})
        assert "leads out of the repository" in refusal("hf:org/x")
    assert not list(home.rglob("*.gguf"))


def test_refusals_say_what_to_do(hub, home, monkeypatch, gguf):
    hub.repos["org/gated"] = Repo({"x.gguf": gguf}, token="hf_right", gated=True)
    hub.repos["org/private"] = Repo({"x.gguf": gguf}, token="hf_right")
    hub.repos["org/bin"] = Repo({"config.json": b"{}", "pytorch_model.bin": b"x"})
    hub.repos["org/two"] = Repo({"a-Q4_K_M.gguf": b"a", "b-Q4_K_M.gguf": b"b"})
    assert f"is gated; accept its licence at {hub.url}/org/gated, then set HF_TOKEN" in refusal("hf:org/gated")
    assert "no public repository of this name" in refusal("hf:org/private")
    assert "no public repository of this name" in refusal("hf:org/none")
    assert "has no revision" in refusal("hf:org/gated@v9")
    assert "weights as pickled Python, which Quire does not load" in refusal("hf:org/bin")
    assert "neither a file nor a quantization called \"Q3_K\"" in refusal("hf:org/two:Q3_K")
    assert "name one of its files: a-Q4_K_M.gguf, b-Q4_K_M.gguf" in refusal("hf:org/two")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert "the account of your token has no access yet" in refusal("hf:org/gated")
    monkeypatch.setenv("HF_TOKEN", "hf_bad\nX-Evil: 1")
    assert "characters that no token has" in refusal("hf:org/gated")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    pull("hf:org/gated")
    pull("hf:org/private")
    hub.fail("/api/models/org/two", 403, headers={"X-Error-Message": "blocked"})
    assert 'forbids the download (HTTP 403: "blocked")' in refusal("hf:org/two")
    hub.fail("/api/models/org/two", 401)
    assert "does not accept your token" in refusal("hf:org/two")


def test_the_token_goes_to_the_hub_only(hub, home, monkeypatch, gguf):
    hub.repos["org/private"] = Repo({"x.gguf": gguf, "README.md": b""}, token="hf_right")
    (home / ".cache/huggingface").mkdir(parents=True)
    (home / ".cache/huggingface/token").write_text("hf_right\n")  # as its own client stores it
    pull("hf:org/private")
    sent = {host: {headers.get("Authorization") for h, _, _, headers in hub.requests if h == host} for host in ("hub", "cdn")}
    assert sent == {"hub": {"Bearer hf_right"}, "cdn": {None}}
    hub.files["x.gguf"] = gguf
    hub.requests.clear()
    other = hub.url.replace("127.0.0.1", "localhost")  # another host as far as tokens go
    pull(f"{other}/files/x.gguf")
    assert {headers.get("Authorization") for *_, headers in hub.requests} == {None}


def test_a_renamed_repository(hub, home, gguf):
    hub.repos["org/new"] = Repo({"x.gguf": gguf})
    hub.renamed["org/old"] = "org/new"
    assert 'the repository is now called "org/new"' in pull("hf:org/old").stderr
    assert quire("inspect", "hf:org/old").returncode == 0


def test_errors_that_pass_are_waited_for(hub, home, gguf):
    hub.repos["org/x"] = Repo({"x.gguf": gguf})
    hub.fail("/api/", 503)
    hub.fail("/resolve/", 429, headers={"Retry-After": "1"})
    hub.fail("^/[0-9a-f]{64}", 500)
    began = time.monotonic()
    done = pull("hf:org/x")
    assert "HTTP 503" in done.stderr and "too many requests: HTTP 429" in done.stderr and "HTTP 500" in done.stderr
    assert time.monotonic() - began >= 1
    assert open(done.stdout.strip(), "rb").read() == gguf


def test_errors_that_stay_end_it(hub, home, gguf):
    hub.repos["org/x"] = Repo({"x.gguf": gguf})
    hub.fail("/api/", 429, headers={"Retry-After": "3600"})
    began = time.monotonic()
    assert "asks to wait 3600 s" in refusal("hf:org/x")
    assert time.monotonic() - began < 10
    hub.fail("/resolve/", 502, count=100)
    assert "HTTP 502" in refusal("hf:org/x")
    assert 6 <= hub.count("/resolve/") <= 7


def test_a_bad_command_line_downloads_nothing(hub, home):
    hub.repos["org/x"] = Repo({"x.gguf": b"x"})
    for arguments in (["run", "-m", "hf:org/x", "-p", "x", "--top-p", "2"], ["run", "-m", "hf:org/x", "--no-such-flag"], ["pull"], ["pull", "hf:org/x", "--connections", "0"]):
        assert quire(*arguments).returncode == 2
    assert hub.requests == []


def test_no_connection(hub, home, monkeypatch):
    hub.repos["org/x"] = Repo({"x.gguf": b"x"})
    for flags, environment in [(["--offline"], {}), ([], {"HF_HUB_OFFLINE": "1"})]:
        done = quire("inspect", "hf:org/x", *flags, env=os.environ | environment)
        assert done.returncode == 1 and "is not downloaded, and" in done.stderr
    assert hub.requests == []
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    assert "no answer from http://127.0.0.1:9" in refusal("hf:org/x")
    monkeypatch.setenv("HF_ENDPOINT", "http://example.com")
    assert "is not encrypted" in refusal("hf:org/x")


def test_a_redirect_may_not_leave_https_or_http(hub, home):
    for target in ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://example.com/x"):
        hub.fail("/api/", 302, headers={"Location": target})
        message = refusal("hf:org/x")
        assert "only https URLs" in message or "is not encrypted" in message
    hub.fail("/api/", 302, count=100, headers={"Location": "/api/models/org/x/revision/main"})
    assert "redirects more than 10 times" in refusal("hf:org/x")


def test_replies_that_are_no_hub(hub, home):
    hub.fail("/api/", 200, headers={"Content-Type": "text/html"})
    assert "the hub's reply about hf:org/x" in refusal("hf:org/x")


def test_a_damaged_download_is_removed(hub, home, large):
    hub.repos["org/x"] = Repo({"x.gguf": large})
    digest = hashlib.sha256(large).hexdigest()
    hub.blobs[digest] = large[:-1] + bytes([large[-1] ^ 1])
    assert "x.gguf arrived damaged" in refusal("hf:org/x")
    assert partial_files(home) == [] and not list(home.rglob("*.gguf"))
    hub.blobs[digest] = large + b"longer"
    assert "sends other bytes than were asked for" in refusal("hf:org/x")
    hub.blobs[digest] = large
    pull("hf:org/x")
    hub.repos["org/y"] = Repo({"config.json": b"{}", "model.safetensors": b"x"})
    hub.repos["org/y"].etag = lambda path: "0" * 40 if path == "config.json" else hashlib.sha256(b"x").hexdigest()
    assert "config.json arrived damaged" in refusal("hf:org/y")


def test_a_disk_that_is_too_small(hub, home, gguf):
    hub.repos["org/x"] = Repo({"x.gguf": gguf}, sizes={"x.gguf": 10**15})
    message = refusal("hf:org/x")
    assert "needs 1000000.00 GB more" in message and "free" in message
    assert hub.count(".", host="cdn") == 0


def test_models_that_do_not_fit_the_memory(hub, home):
    sizes = {"x-Q4_K_M.gguf": 10**15, "x-Q8_0.gguf": 2 * 10**15, "x-Q2_K.gguf": 1000}
    hub.repos["org/x"] = Repo({name: b"x" * 1000 for name in sizes}, sizes=sizes)
    done = pull("hf:org/x")
    assert "Q2_K (the largest that fits the available memory" in done.stderr and "Q4_K_M does not fit" in done.stderr
    del hub.repos["org/x"].files["x-Q2_K.gguf"]
    hub.repos["org/x"].commit = COMMIT[::-1]
    assert "no file fits the" in refusal("hf:org/x")


# ---- several connections, cut and continued --------------------------------------------------------------------------


def test_a_large_file_comes_over_several_connections(hub, home, large):
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.seconds_per_step = 0.002
    done = pull("hf:org/x", "--connections", "3")
    assert open(done.stdout.strip(), "rb").read() == large
    ranges = {headers["Range"] for host, method, _, headers in hub.requests if host == "cdn" and method == "GET"}
    assert ranges == {"bytes=0-16777215", "bytes=16777216-33554431", "bytes=33554432-41943039"}


def test_cut_connections_are_continued(hub, home, large):
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.fail("^/[0-9a-f]{64}", cut=5 << 20, count=3)
    done = pull("hf:org/x")
    assert open(done.stdout.strip(), "rb").read() == large
    assert any(headers.get("Range") == f"bytes={5 << 20}-16777215" for *_, headers in hub.requests)


def test_a_signed_url_that_expires_is_asked_for_again(hub, home, large):
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.fail("^/[0-9a-f]{64}", 403, count=1)
    pull("hf:org/x")
    hub.repos["org/y"] = Repo({"y.gguf": large[1:]})
    hub.fail("^/[0-9a-f]{64}", 403, count=100)
    assert "forbids the download" in refusal("hf:org/y")


def test_files_of_xet(hub, home, large):
    """Its redirects have further headers, which are for its own protocol. Clients of HTTP get the file all the same."""
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.redirect_headers = {
        "X-Xet-Hash": "ab" * 32,
        "Link": f'<{hub.url}/api/models/org/x/xet-read-token/{COMMIT}>; rel="xet-auth", <{hub.url}/cas>; rel="xet-reconstruction-info"',
    }
    assert open(pull("hf:org/x").stdout.strip(), "rb").read() == large
    assert hub.count("xet|cas") == 0


def test_a_server_without_ranges(hub, home, large):
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.has_ranges = False
    done = pull("hf:org/x")
    assert open(done.stdout.strip(), "rb").read() == large
    hub.repos["org/y"] = Repo({"y.gguf": large[1:]})
    hub.fail("^/[0-9a-f]{64}", cut=1 << 20, count=1000)  # never comes to the end
    assert "gave up after several tries" in refusal("hf:org/y")
    assert hub.count("^/[0-9a-f]{64}", host="cdn") < 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_download_is_continued(hub, home, large, number):
    skip_without_binary()
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.seconds_per_step = 0.1  # 5 MB/s over two connections, so that the journal is saved a few times
    process = subprocess.Popen([QUIRE, "pull", "hf:org/x", "--connections", "2"], stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: hub.bytes_sent > 18 << 20, 60)
    process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == -number
    if number == signal.SIGINT:
        assert "the same command continues it" in error
    etag = hashlib.sha256(large).hexdigest()
    assert partial_files(home) == [etag + ".quire.incomplete", etag + ".quire.ranges"]
    assert not list(home.rglob("*.gguf"))
    hub.seconds_per_step, hub.bytes_sent = 0, 0
    if number == signal.SIGKILL:  # what is unfinished can be removed, too
        shutil.copytree(home, home / "copy", symlinks=True)
        done = quire("rm", "hf:org/x", "--yes", env=os.environ | {"HOME": str(home / "copy")})
        assert done.returncode == 0 and "41.9 MB freed" in done.stdout, done.stdout + done.stderr
        shutil.rmtree(home / "copy")
    done = pull("hf:org/x")
    assert open(done.stdout.strip(), "rb").read() == large
    assert hub.bytes_sent < LARGE - (4 << 20)  # at least 4 of the 18 MiB were kept
    assert partial_files(home) == []


def test_a_broken_journal_starts_again(hub, home, large):
    hub.repos["org/x"] = Repo({"x.gguf": large})
    blobs = repo_folder(home, "org/x") / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / (hashlib.sha256(large).hexdigest() + ".quire.incomplete")
    for journal in ("{", '{"etag": "x", "size": 1, "piece": 65536, "done": []}', json.dumps({"etag": partial.name[:64], "size": LARGE, "piece": 1 << 24, "done": [1 << 25, 0, 0]})):
        partial.write_bytes(b"\0" * LARGE)
        partial.with_name(partial.name.replace("incomplete", "ranges")).write_text(journal)
        assert open(pull("hf:org/x").stdout.strip(), "rb").read() == large
        assert quire("rm", "hf:org/x", "--yes").returncode == 0
        blobs.mkdir(parents=True, exist_ok=True)


def test_two_processes_download_a_file_once(hub, home, large):
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.seconds_per_step = 0.01
    command = [QUIRE, "pull", "hf:org/x"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] and open(outputs[0][0].strip(), "rb").read() == large
    assert hub.bytes_sent == LARGE


def test_a_proxy(hub, home, monkeypatch, gguf):
    hub.repos["org/x"] = Repo({"x.gguf": gguf})
    with local_hub() as proxy:
        proxy.repos, proxy.blobs = hub.repos, hub.blobs
        proxy.cdn_url = lambda blob: f"http://127.0.0.1:1/{blob}"
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.2:1")
        monkeypatch.setenv("http_proxy", proxy.url)
        hub.repos["org/x"].is_large = lambda path: False  # no second host
        pull("hf:org/x")
        assert proxy.proxied and all(url.startswith("http://127.0.0.2:1/") for url in proxy.proxied)


def test_the_progress_on_a_terminal(hub, home, large):
    skip_without_binary()
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.seconds_per_step = 0.05
    leader, follower = pty.openpty()
    process = subprocess.Popen([QUIRE, "pull", "hf:org/x"], stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:
        pass  # closed
    process.communicate(timeout=60)
    os.close(leader)
    assert process.returncode == 0
    assert re.search(rb"downloading x.gguf: \d+ of 40 MiB, [\d.]+ MB/s, \d+ s left", shown), shown


# ---- list, show, rm --------------------------------------------------------------------------------------------------


def test_list_and_rm(hub, home, gguf):
    hub.repos["org/x"] = Repo({"x-Q4_0.gguf": gguf, "x-Q8_0.gguf": gguf + b"8"})
    pull("hf:org/x:Q4_0")
    pull("hf:org/x:Q8_0")
    listed = quire("list").stdout
    assert re.search(r"hf:org/x:Q4_0 +\d+ MiB", listed) and "hf:org/x:Q8_0" in listed
    # A newer commit with one of the files changed: the other's blob belongs to both.
    hub.repos["org/x"] = Repo({"x-Q4_0.gguf": gguf, "x-Q8_0.gguf": gguf + b"9"}, commit="f" * 40)
    pull("hf:org/x:Q4_0")
    pull("hf:org/x:Q8_0")
    blobs = repo_folder(home, "org/x") / "blobs"
    assert len(list(blobs.iterdir())) == 3
    done = quire("rm", "hf:org/x:Q4_0", "--yes")
    assert done.returncode == 0 and "0.0 MB freed" in done.stdout
    assert len(list(blobs.iterdir())) == 3
    assert quire("rm", f"hf:org/x@{COMMIT}", "--yes").returncode == 0
    assert len(list(blobs.iterdir())) == 1
    assert "hf:org/x:Q8_0" in quire("list").stdout
    without_terminal = quire("rm", "hf:org/x", stdin=subprocess.DEVNULL)
    assert without_terminal.returncode == 2 and "--yes" in without_terminal.stderr
    assert quire("rm", "hf:org/x", "--yes").returncode == 0
    assert not repo_folder(home, "org/x").exists()
    gone = quire("rm", "hf:org/x", "--yes")
    assert gone.returncode == 1 and "is not downloaded" in gone.stderr
    assert "quire pull hf:org/x" in quire("show", "hf:org/x").stderr
    assert quire("rm", "/etc/passwd", "--yes").returncode == 1


def test_rm_leaves_what_is_being_downloaded(hub, home, large):
    skip_without_binary()
    hub.repos["org/x"] = Repo({"x.gguf": large})
    hub.seconds_per_step = 0.05
    process = subprocess.Popen([QUIRE, "pull", "hf:org/x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: hub.bytes_sent > 1 << 20, 60)
    done = quire("rm", "hf:org/x", "--yes")
    assert done.returncode == 1 and "is being downloaded by another program" in done.stderr
    output, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert open(output.strip(), "rb").read() == large


# ---- the hub's own client --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub_client():
    """A Python with huggingface_hub, which needs other versions of packages than the other tests: in build/hub-venv."""
    folder = ROOT / "build/hub-venv"
    python = folder / "bin/python"
    if subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True).returncode != 0:
        pytest.skip("no venv can be made for huggingface_hub")
    if subprocess.run([python, "-c", "import huggingface_hub"], capture_output=True).returncode != 0:
        if subprocess.run([python, "-m", "pip", "install", "-q", "huggingface_hub>=1,<3"], capture_output=True).returncode != 0:
            pytest.skip("huggingface_hub cannot be installed")
    return python


def in_client(python, code):
    done = subprocess.run([python, "-c", "from huggingface_hub import hf_hub_download, snapshot_download\n" + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_cache_is_that_of_the_hubs_client(hub, home, gguf, large, hub_client):
    model = {path.name: path.read_bytes() for path in (GOLDEN / "models/llama").iterdir() if path.is_file()}
    hub.repos["org/ours"] = Repo({"sub/x-Q4_0.gguf": gguf})
    hub.repos["org/theirs"] = Repo({"sub/x-Q4_0.gguf": gguf + b"2", "README.md": b"text"})
    hub.repos["org/folder"] = Repo(model)
    ours, folder = (pull(f"hf:org/{name}").stdout.strip() for name in ("ours", "folder"))
    assert in_client(hub_client, "print(hf_hub_download('org/ours', 'sub/x-Q4_0.gguf', local_files_only=True))") == ours
    assert in_client(hub_client, "print(snapshot_download('org/folder', local_files_only=True))") == folder
    theirs = in_client(hub_client, "print(hf_hub_download('org/theirs', 'sub/x-Q4_0.gguf'))")
    hub.requests.clear()
    found = json.loads(quire("show", "hf:org/theirs", "--json").stdout)
    assert found["path"] == theirs and hub.requests == []
    pull("hf:org/theirs")  # asks the hub, and downloads nothing
    assert hub.count(".", "GET", "cdn") == 0
    # Its tools read what Quire wrote.
    scanned = in_client(hub_client, "from huggingface_hub import scan_cache_dir\nprint(sorted(r.repo_id for r in scan_cache_dir().repos), scan_cache_dir().warnings)")
    assert scanned == "['org/folder', 'org/ours', 'org/theirs'] []"


# ---- headers alone ---------------------------------------------------------------------------------------------------


def planned(name, *flags):
    done = quire("plan", name, "--json", "--hardware", "h100", *flags)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    del plan["model"]["name"]
    return plan, done.stderr


def folders_of_plans():
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("quire-plan-")]


def test_plan_reads_the_headers_of_a_file_only(hub, home, tmp_path):
    path = tmp_path / "model.gguf"
    done = quire("synth", "--shape", "smollm2-135m", "--type", "q4_0", "-o", path)
    assert done.returncode == 0, done.stderr
    gguf = path.read_bytes()
    assert len(gguf) > 50 << 20
    hub.repos["org/x"] = Repo({"x-Q4_0.gguf": gguf, "x-Q8_0.gguf": b"no model"})
    before = folders_of_plans()
    found, log = planned("hf:org/x:q4_0")
    assert "only headers are downloaded" in log
    ranges = [headers["Range"] for host, _, _, headers in hub.requests if host == "cdn"]
    assert ranges[0] == "bytes=0-262143" and hub.bytes_sent <= 32 << 20, (ranges, hub.bytes_sent)
    starts = [int(asked.removeprefix("bytes=").split("-")[0]) for asked in ranges]
    assert starts == sorted(set(starts)), "no byte comes twice"
    assert found == planned(path)[0]
    assert not repo_folder(home, "org/x").exists() and folders_of_plans() == before
    pull("hf:org/x:q4_0")
    hub.requests.clear()
    assert planned("hf:org/x:q4_0")[0] == found and hub.requests == [], "what is on this machine needs no connection"


def test_plan_reads_the_headers_of_a_directory_only(hub, home):
    model = GOLDEN / "models/llama"
    files = {name: (model / name).read_bytes() for name in ("config.json", "generation_config.json", "model.safetensors")}
    files["tokenizer.json"] = b"{}"
    weights = files["model.safetensors"]
    header = 8 + int.from_bytes(weights[:8], "little")
    # A long header: a first range does not have all of it.
    long = json.loads(weights[8:header])
    long["__metadata__"] = {"x": "y" * (1 << 20)}
    text = json.dumps(long).encode()
    files["model.safetensors"] = len(text).to_bytes(8, "little") + text + weights[header:]
    hub.repos["org/x"] = Repo(files)
    found, _ = planned("hf:org/x")
    assert found == planned(model)[0]
    sent = [(path, headers.get("Range")) for host, _, path, headers in hub.requests if host == "cdn"]
    assert [asked for _, asked in sent] == ["bytes=0-262143", f"bytes=262144-{8 + len(text) - 1}"]
    assert hub.count("config.json") > 0 and hub.count("tokenizer.json") == 0


def test_plan_says_why_there_are_no_headers(hub, home, gguf, monkeypatch):
    hub.repos["org/x"] = Repo({"x-Q4_0.gguf": gguf})

    def refused(*flags):
        done = quire("plan", "hf:org/x", "--no-probe", *flags)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    assert "--offline forbids connections" in refused("--offline")
    hub.has_ranges = False
    hub.repos["org/x"].files["x-Q4_0.gguf"] = gguf + bytes(1 << 20)
    assert "does not send parts of files" in refused()
    hub.has_ranges = True
    hub.repos["org/x"].files["x-Q4_0.gguf"] = b"no model" * 100_000
    assert "not a GGUF file" in refused()
    assert folders_of_plans() == []


# ---- from a server ---------------------------------------------------------------------------------------------------


@pytest.fixture
def serving(hub, home, gguf):
    """A server of a small model whose clients may pull others."""
    path = home / "served.gguf"
    path.write_bytes(gguf)
    server = Server("--max-model-len", "256", "--memory", "1GiB", model=path, name="served")
    yield server
    code, log = server.stop()
    assert code == 0, log


def ask(server, method, path, body):
    request = urllib.request.Request(server.base + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_clients_of_a_server_pull_and_delete(hub, home, large, gguf, serving):
    hub.repos["org/x"] = Repo({"x-Q4_0.gguf": large, "x-Q8_0.gguf": gguf})
    digest = hashlib.sha256(large).hexdigest()
    hub.seconds_per_step = 0.005
    status, text = ask(serving, "POST", "/api/pull", {"model": "hf.co/org/x:Q4_0"})
    lines = lines_of(text)
    assert status == 200 and lines[0] == {"status": "pulling manifest"} and lines[-1] == {"status": "success"}
    pulling = [line for line in lines if line["status"] == f"pulling {digest[:12]}"]
    assert len(pulling) > 1 and {line["digest"] for line in pulling} == {"sha256:" + digest} and {line["total"] for line in pulling} == {len(large)}
    completed = [line["completed"] for line in pulling]
    assert completed == sorted(completed) and completed[-1] == len(large)
    assert "-m hf:org/x:Q4_0" in lines[-2]["status"]
    link = repo_folder(home, "org/x") / "snapshots" / COMMIT / "x-Q4_0.gguf"
    assert link.read_bytes() == large and partial_files(home) == []
    assert ask(serving, "POST", "/api/pull", {"model": "hf:org/x:q8_0", "stream": False}) == (200, '{"status":"success"}')
    status, text = ask(serving, "DELETE", "/api/delete", {"model": "hf.co/org/x:Q4_0"})
    assert (status, text) == (200, "") and not link.exists() and (link.parent / "x-Q8_0.gguf").exists()
    status, text = ask(serving, "DELETE", "/api/delete", {"model": "hf.co/org/x:Q4_0"})
    assert status == 404 and "It has Q8_0" in json.loads(text)["error"]
    status, text = ask(serving, "DELETE", "/api/delete", {"model": "llama3"})
    assert status == 404 and json.loads(text) == {"error": 'model "llama3" not found'}
    status, text = ask(serving, "POST", "/api/pull", {"model": "hf.co/org/none"})
    assert "no public repository" in lines_of(text)[-1]["error"]
    status, text = ask(serving, "POST", "/api/pull", {"model": "org/../x", "stream": False})
    assert status == 400 and list(json.loads(text)) == ["error"]


def test_a_pull_ends_with_its_client_and_is_continued(hub, home, large, serving):
    hub.add_ollama_model("library/big", "latest", large)
    hub.seconds_per_step = 0.05
    name = f"ollama:{hub.host}/library/big"
    connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60)
    connection.request("POST", "/api/pull", json.dumps({"model": name}))
    response = connection.getresponse()
    while json.loads(response.readline()).get("completed", 0) < 4 << 20:
        pass
    response.close()
    connection.close()
    time.sleep(1)
    sent = hub.bytes_sent
    time.sleep(1)
    assert hub.bytes_sent == sent < len(large) and partial_files(home) != []
    assert ask(serving, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 4})[0] == 200
    hub.seconds_per_step = 0
    pulls = [threading.Thread(target=lambda: answers.append(ask(serving, "POST", "/api/pull", {"model": name, "stream": False}))) for _ in range(2)]
    answers = []
    for thread in pulls:
        thread.start()
    for thread in pulls:
        thread.join()
    assert answers == [(200, '{"status":"success"}')] * 2
    assert hub.bytes_sent < 2 * len(large), "what had come was kept, and the two pulls did not come twice"
    assert partial_files(home) == []


def test_a_server_keeps_what_it_serves(hub, home, gguf):
    hub.repos["org/tiny"] = Repo({"tiny-Q4_0.gguf": gguf})
    server = Server("--max-model-len", "256", "--memory", "1GiB", models=["mine=hf:org/tiny"])
    try:
        for name in ("mine", "hf:org/tiny:q4_0", "hf.co/org/tiny"):
            status, text = ask(server, "DELETE", "/api/delete", {"model": name})
            assert status == 400 and "serve" in text, (name, text)
        assert (repo_folder(home) / "snapshots" / COMMIT / "tiny-Q4_0.gguf").exists()
    finally:
        assert server.stop()[0] == 0


def test_a_server_of_several_models_serves_what_it_pulls(hub, home, large, gguf):
    path = home / "served.gguf"
    path.write_bytes(gguf)
    hub.repos["org/tiny"] = Repo({"tiny-Q4_0.gguf": gguf})
    hub.repos["org/x"] = Repo({"x-Q4_0.gguf": large})
    hub.add_ollama_model("library/tiny", "1b", gguf)
    server = Server("--max-model-len", "256", "--memory", "1GiB", "--keep-alive", "1h", models=[f"first={path}"])
    ollama = f"ollama:{hub.host}/library/tiny:1b"

    def chat(model):
        status, text = ask(server, "POST", "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 8, "temperature": 0})
        return json.loads(text)["choices"][0]["text"] if status == 200 else status

    try:
        answer = chat("first")
        for name in ("hf.co/org/tiny", ollama):
            assert chat(name) == 404
            assert lines_of(ask(server, "POST", "/api/pull", {"model": name})[1])[-1] == {"status": "success"}
            assert chat(name) == answer
        listed = json.load(urllib.request.urlopen(server.base + "/api/tags"))["models"]
        assert {"first:latest", "hf.co/org/tiny:latest", ollama} <= {model["name"] for model in listed}
        status, text = ask(server, "POST", "/api/pull", {"model": "hf.co/org/x"})
        assert "not a GGUF file" in lines_of(text)[-1]["error"] and chat("hf.co/org/x") == 404
        assert ask(server, "DELETE", "/api/delete", {"model": "hf.co/org/tiny"}) == (200, "")
        assert chat("hf.co/org/tiny") == 404 and not (repo_folder(home) / "snapshots" / COMMIT / "tiny-Q4_0.gguf").exists()
        assert chat(ollama) == answer
        assert ask(server, "DELETE", "/api/delete", {"model": "first"})[0] == 400
    finally:
        assert server.stop()[0] == 0


def test_an_offline_server_pulls_nothing(hub, home, gguf):
    path = home / "served.gguf"
    path.write_bytes(gguf)
    server = Server("--max-model-len", "256", "--memory", "1GiB", "--offline", model=path, name="served")
    try:
        status, text = ask(server, "POST", "/api/pull", {"model": "hf.co/org/x", "stream": False})
        assert status == 404 and "--offline" in json.loads(text)["error"]
        assert hub.requests == []
    finally:
        assert server.stop()[0] == 0
