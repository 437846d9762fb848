"""Remembers which sources a check has found clean. A source is checked again only when it, a header it includes, or the check changes.
All checkouts on a machine share these records, as they share ccache."""

import functools
import hashlib
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DAYS_KEPT = 60


@functools.cache
def included_by(path):
    """The project's files that a file includes, itself among them."""
    found = {path}
    for name in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', path.read_text(), re.MULTILINE):
        for folder in (ROOT / "src", ROOT / "include"):
            if (folder / name).is_file():
                found |= included_by(folder / name)
    return found


class CleanFiles:
    """An empty file for each clean state, in a folder of the check's name. settings: bytes of all else that the result depends on."""

    def __init__(self, check, settings):
        self.folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quire" / check
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings = hashlib.sha256(settings)
        for mark in self.folder.iterdir():
            if time.time() - mark.stat().st_mtime > DAYS_KEPT * 86400:
                mark.unlink()

    def mark(self, files):
        """Returns the file to touch when `files` are found clean, or None if they have been before."""
        state = self.settings.copy()
        for file in sorted(files):
            state.update(file.read_bytes())
        mark = self.folder / state.hexdigest()
        if not mark.exists():
            return mark
        mark.touch()
        return None


def check(jobs, waiting, command):
    """Runs `command` with each source of `waiting`, a list of sources and marks, and prints what it says of those that are not clean.
    Returns their number."""

    def run(job):
        source, mark = job
        done = subprocess.run([*command, str(source)], capture_output=True, text=True)
        if done.returncode == 0:
            mark.touch()
        return source, done

    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for source, done in pool.map(run, waiting):
            if done.returncode != 0:
                failed += 1
                print(f"{source.relative_to(ROOT)}:\n{done.stdout}{done.stderr if not done.stdout else ''}", flush=True)
    return failed
