"""The documents name flags that exist and show output that the program prints. scripts/check_layers.py checks their paths."""

import re
import subprocess
import sys

from conftest import ROOT, quire

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy/README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/lab").glob("*.md"))]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def commands(*command):
    """The --help of a command and of its subcommands."""
    text = quire(*command, "--help").stdout
    yield text
    listed = re.search(r"\n(?:Subc|C)ommands:\n((?:  .*\n)+)", text)
    for name in re.findall(r"^  (\w+) ", listed.group(1) if listed else "", re.M):
        yield from commands(*command, name)


def test_documented_flags_exist():
    known = set(FLAG.findall("\n".join(commands())))
    for script in [[ROOT / "dev"], *([sys.executable, script] for script in (ROOT / "scripts").glob("*.py") if "argparse" in script.read_text())]:
        known |= set(FLAG.findall(subprocess.run([*script, "--help"], capture_output=True, text=True, check=True).stdout))
    assert {"--max-num-seqs", "--kernel-sets", "--shared-prefix", "--minutes"} <= known
    known |= {"--install", "--now", "--unix-socket", "--gtest", "--no-build-isolation", "--ignore-missing", "--purge", "--map-by", "--bind-to", "--mca"}  # of cmake, systemctl, curl, GoogleTest, pip, sha256sum, dpkg, mpirun
    known |= {"--policy", "--worker-urls", "--kv-event-model", "--kv-event-source", "--health-check-interval-secs", "--health-failure-threshold"}  # of routers
    known |= {"--health-success-threshold", "--set"}  # likewise, and of helm
    for document in DOCUMENTS:
        without_patches = re.sub(r"```diff\n.*?```", "", document.read_text(), flags=re.S)  # they add what does not exist
        assert set(FLAG.findall(without_patches)) <= known, document


def test_the_table_of_memory_is_what_the_server_logs(start_server):
    running = start_server()
    code, log = running.stop()
    assert code == 0, log

    def shape(text):
        return [re.sub(r" *\d+", " 0", line) for line in re.findall(r"memory: .*", text)]

    documented = shape((ROOT / "docs/serving.md").read_text())
    assert len(documented) == 5 and documented == shape(log)
