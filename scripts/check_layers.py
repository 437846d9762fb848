#!/usr/bin/env python3
"""Checks the house rules that a compiler does not: which folder may include which, names, sizes, instruction sets that stay apart, and documents
that speak of files that exist."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Each folder and what lies directly below it; what lies below that is allowed too.
BELOW = {
    "base": [],
    "json": ["base"],
    "format": ["json"],
    "jinja": ["json"],
    "text": ["jinja"],
    "quant": ["base"],
    "kernels": ["quant"],
    "model": ["kernels", "format", "text"],
    "kv": ["base"],
    "sampling": ["base"],
    "engine": ["model", "kv", "sampling"],
    "server": ["engine"],
    "load": ["json"],
    "cli": ["server", "load"],
}
PUBLIC = {"sampling", "engine", "server", "cli"}  # may include include/quire; everybody may include quire/types.h
BANNED = re.compile(r"(^|_)(utils?|common|helpers?|managers?)(_|$)")
LONGEST = 800  # lines of a source file
MOST_FILES = 40  # of one folder, without its subfolders


def reachable(folder):
    found = {folder}
    for below in BELOW[folder]:
        found |= reachable(below)
    return found


def check_sources():
    for path in sorted((ROOT / "src").rglob("*.*")):
        if path.suffix not in (".cc", ".h"):
            continue
        name = path.relative_to(ROOT)
        folder = path.relative_to(ROOT / "src").parts[0]
        if folder not in BELOW:
            yield f"{name}: {folder}/ is no folder of the design"
            continue
        lines = path.read_text().splitlines()
        if len(lines) > LONGEST:
            yield f"{name}: {len(lines)} lines; does it still hold one idea?"
        if any(BANNED.search(part.split(".")[0]) for part in path.relative_to(ROOT / "src").parts):
            yield f"{name}: call it after what it does"
        allowed = reachable(folder)
        for number, line in enumerate(lines, 1):
            match = re.match(r'\s*#\s*include\s+"([^"/]+)/', line)
            if not match:
                continue
            included = match.group(1)
            if included == "quire":
                if folder not in PUBLIC and "quire/types.h" not in line:
                    yield f"{name}:{number}: {folder}/ lies below the public interface"
            elif included not in allowed:
                yield f"{name}:{number}: {folder}/ may not include {included}/"


def check_folders():
    for folder in sorted({path.parent for path in (ROOT / "src").rglob("*.*")}):
        files = sum(path.is_file() for path in folder.iterdir())
        if files > MOST_FILES:
            yield f"{folder.relative_to(ROOT)}: {files} files; make subfolders by subject"
    for kind in ("unit", "golden", "property"):
        for path in sorted((ROOT / "tests" / kind).rglob("*.cc")):
            if re.search(r"^(TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(", path.read_text(), re.M) and not path.stem.endswith("_test"):
                yield f"{path.relative_to(ROOT)}: files with tests are called NAME_test.cc"


def check_types():
    """A name in two headers is two types for the linker too, which takes the destructor of one for both."""
    first = {}
    for path in sorted([*(ROOT / "src").rglob("*.h"), *(ROOT / "include").rglob("*.h")]):
        namespace = ""
        for line in path.read_text().splitlines():
            if opened := re.match(r"namespace ?(\S*) \{", line):
                namespace = opened.group(1)
            named = re.match(r"(?:struct|class|enum class|union) (\w+)[^;]*\{", line)
            if named and namespace:
                name = f"{namespace}::{named.group(1)}"
                if first.setdefault(name, path) != path:
                    yield f"{path.relative_to(ROOT)}: {name} is the name of a type in {first[name].relative_to(ROOT)} already"


QUOTED = re.compile(r"`([^`\s]+)`|\]\(([^)\s]+)\)")  # `path`, [text](path)
OURS = re.compile(r"(src|tests|docs|scripts|deploy|include)/|.+\.(cc|h|py)$")


def check_documents():
    """Of what documents quote, what looks like a file of this repository is one. NAME, FOLDER and * stand for any."""
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    for document in (name for name in tracked if name.endswith(".md")):
        folders = [ROOT, ROOT / "src", (ROOT / document).parent]
        for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
            for quoted, linked in QUOTED.findall(line):
                path = re.sub(r"\b[A-Z]{2,}\b", "*", linked.partition("#")[0] or quoted)
                if re.match(r"\w+:|/|$", path) or not (linked or OURS.match(path)):
                    continue
                known = "/" not in path and any(name.endswith("/" + path) for name in tracked)  # in a folder that the text names
                if not known and not any(any(folder.glob(path)) for folder in folders):
                    yield f"{document}:{number}: there is no {quoted or linked}"


def check_instruction_sets(build):
    """A weak symbol compiled for AVX-512 could be linked in for everyone: there must be none."""
    for name in ("avx2", "avx2vnni", "avx512", "avx512bf16", "amx"):
        found = list(build.glob(f"CMakeFiles/quire_kernels.dir/src/kernels/x86/{name}.cc.o"))
        if not found:
            yield f"{build}: no object of {name}.cc"
            continue
        symbols = subprocess.run(["nm", "-C", found[0]], capture_output=True, text=True, check=True).stdout
        for line in symbols.splitlines():
            if re.match(r"\S* *[WVu] ", line):
                yield f"{name}.cc: the symbol {line.split(maxsplit=2)[-1]} could replace the one that all machines use"


def main():
    problems = [*check_sources(), *check_folders(), *check_types(), *check_documents()]
    if len(sys.argv) > 1:
        problems += check_instruction_sets(Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
