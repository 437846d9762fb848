#!/usr/bin/env python3
"""Checks the house rules that a compiler does not: which folder includes which (and the picture of it in docs/architecture.md), names, sizes, instruction
sets that stay apart, and the paths in documents."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Each folder and the folders directly below it. It may include these and everything below them. docs/architecture.md shows the same.
BELOW = {
    "base": [],
    "json": ["base"],
    "grammar": ["json"],
    "format": ["json"],
    "jinja": ["json"],
    "text": ["jinja"],
    "parsers": ["text"],
    "quant": ["base"],
    "kernels": ["quant"],
    "ops": ["kernels"],
    "cuda": ["ops"],
    "model": ["ops", "format", "text"],
    "quantize": ["model"],
    "kv": ["base"],
    "redis": ["kv"],
    "trace": ["json"],
    "sampling": ["base"],
    "speculate": ["model", "kv", "sampling"],
    "engine": ["speculate", "redis", "grammar", "trace"],
    "plan": ["engine"],
    "server": ["engine", "parsers"],
    "load": ["json"],
    "cluster": ["plan", "load"],
    "hub": ["json"],
    "cli": ["server", "cluster", "hub", "quantize"],
}
# Subfolders beside it that a subfolder, and everything in it, must not include.
APART = {"server/api": ["server/http/", "server/endpoints/"], "server/batch": ["server/http/", "server/endpoints/"], "server/endpoints": ["server/http/"]}
PUBLIC = {"sampling", "engine", "plan", "cluster", "server", "cli"}  # may include include/quire; everybody may include PLAIN
PLAIN = re.compile(r'"quire/(types|error|sampling_params|constraint)\.h"')  # values without code
BANNED = re.compile(r"(^|_)(utils?|common|helpers?|managers?)(_|$)")
LONGEST = 800  # lines of a source file
MOST_FILES = 40  # of one folder, without its subfolders


def reachable(folder):
    found = {folder}
    for below in BELOW[folder]:
        found |= reachable(below)
    return found


def includes(path):
    """(line number, first folder of the included path, line) of each quoted include"""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := re.match(r'\s*#\s*include\s+"([^"/]+)/', line):
            yield number, match.group(1), line


def check_picture():
    """The drawing in docs/architecture.md has every folder above those it includes; the table next to it is BELOW; no edge of BELOW is unused."""
    document = ROOT / "docs/architecture.md"
    text = document.read_text()
    drawing = text.split("```")[1]
    height = {folder: next((i for i, line in enumerate(drawing.splitlines()) if re.search(rf"\b{folder}/", line)), None) for folder in BELOW}
    table = {folder: re.findall(r"`(\w+)`", below) for folder, below in re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)*|–) \|", text, re.M)}
    for folder, below in BELOW.items():
        if sorted(table.get(folder, [])) != sorted(below) or folder not in table:
            yield f"docs/architecture.md: the table's row of {folder} is not: {', '.join(below) or '–'}"
        included = {name for path in (ROOT / "src" / folder).rglob("*.*") if path.suffix in (".cc", ".h") for _, name, _ in includes(path)}
        for lower in below:
            if height[folder] is None or height[lower] is None or height[folder] >= height[lower]:
                yield f"docs/architecture.md: the picture must show {folder}/ above {lower}/"
            if not included & reachable(lower):
                yield f"scripts/check_layers.py: {folder}/ includes nothing of {lower}/ or below it"


def check_sources():
    for path in sorted((ROOT / "src").rglob("*.*")):
        if path.suffix not in (".cc", ".h"):
            continue
        name = path.relative_to(ROOT)
        folder = path.relative_to(ROOT / "src").parts[0]
        if folder not in BELOW:
            yield f"{name}: {folder}/ is not in the list of folders in scripts/check_layers.py"
            continue
        lines = path.read_text().splitlines()
        if len(lines) > LONGEST:
            yield f"{name}: {len(lines)} lines; split it by ideas"
        if any(BANNED.search(part.split(".")[0]) for part in path.relative_to(ROOT / "src").parts):
            yield f"{name}: name it after what it does"
        allowed = reachable(folder)
        apart = [other for subfolder, others in APART.items() if name.is_relative_to(f"src/{subfolder}") for other in others]
        for number, included, line in includes(path):
            for other in apart:
                if f'"{other}' in line:
                    yield f"{name}:{number}: {name.parent.relative_to('src')}/ may not include {other}"
            if included == "quire":
                if folder not in PUBLIC and not PLAIN.search(line):
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
                yield f"{path.relative_to(ROOT)}: has tests, so its name must end in _test.cc"


def check_types():
    """A type defined in two headers violates the one-definition rule: the linker may use the destructor of one for both."""
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
                    yield f"{path.relative_to(ROOT)}: {name} is already defined in {first[name].relative_to(ROOT)}"


# A function, type or constant at the beginning of a line.
DEFINED = re.compile(r"(?:template <.*> )?(?:(?:struct|class|enum class) (\w+)|(?:\[\[.*?\]\] )?[\w:<>,&*\[\] ]+?[ &*](\w+)(?:\(|\{| =(?: |$)|\[))")


def check_anonymous_names():
    """Sources of a library, or of a test program, are compiled together, in batches that shift when a file is added: two anonymous namespaces with one name would then meet."""
    for folder in sorted(path for kind in ("src", "tests/unit", "tests/golden", "tests/property") for path in (ROOT / kind).iterdir() if path.is_dir()):
        first = {"quire::PrintTo": None}  # gtest finds it by its argument, so there are many
        for path in sorted(folder.rglob("*.cc")):
            namespace, anonymous = "", False
            for line in path.read_text().splitlines():
                if opened := re.match(r"namespace (\S+) \{", line):
                    namespace = opened.group(1)
                if re.match(r"(namespace \{|\}  // namespace$)", line):
                    anonymous = line.startswith("namespace")
                if not anonymous or line[:1] in ("", " ", "}", "/", "#") or re.match(r"using |namespace |.*\);$", line):
                    continue
                if found := DEFINED.match(line):
                    name = f"{namespace}::{found.group(1) or found.group(2)}"
                    if first.setdefault(name, path) not in (path, None):
                        yield f"{path.relative_to(ROOT)}: {name} is also in the anonymous namespace of {first[name].relative_to(ROOT)}; rename one"


QUOTED = re.compile(r"`([^`\s]+)`|\]\(([^)\s]+)\)")  # `path`, [text](path)
OURS = re.compile(r"(src|tests|docs|scripts|deploy|include)/|.+\.(cc|h|py)$")


def check_documents():
    """Quoted words that look like files of this repository are files. NAME, FOLDER and * match any name."""
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    for document in (name for name in tracked if name.endswith(".md")):
        folders = [ROOT, ROOT / "src", (ROOT / document).parent]
        for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
            for quoted, linked in QUOTED.findall(line):
                path = re.sub(r"\b[A-Z]{2,}\b", "*", linked.partition("#")[0] or quoted)
                if re.match(r"\w+:|/|$", path) or not (linked or OURS.match(path)):
                    continue
                known = "/" not in path and any(name.endswith("/" + path) for name in tracked)  # the text names the folder
                if not known and not any(any(folder.glob(path)) for folder in folders):
                    yield f"{document}:{number}: {quoted or linked} does not exist"


def check_instruction_sets(build):
    """A weak symbol compiled for AVX-512 could be linked in for all machines, so there must be none."""
    for name in ("avx2", "avx2vnni", "avx512", "avx512bf16", "amx"):
        found = list(build.glob(f"CMakeFiles/quire_kernels.dir/src/kernels/x86/{name}.cc.o"))
        if not found:
            yield f"{build}: no object of {name}.cc"
            continue
        symbols = subprocess.run(["nm", "-C", found[0]], capture_output=True, text=True, check=True).stdout
        for line in symbols.splitlines():
            if re.match(r"\S* *[WVu] ", line):
                yield f"{name}.cc: the weak symbol {line.split(maxsplit=2)[-1]} could replace the one that all machines use"


def main():
    problems = [*check_sources(), *check_picture(), *check_folders(), *check_types(), *check_anonymous_names(), *check_documents()]
    if len(sys.argv) > 1:
        problems += check_instruction_sets(Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
