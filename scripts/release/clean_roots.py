"""Each package in a clean root of a distribution: what a person does with it there. Answers must be those of this machine.

A tiny model, which has no vocabulary, is served and compared with reference logits. SmolLM2 answers a question, if it is here.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from release.contents import ROOT

DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
MIRRORS = {"bullseye": DEBIAN, "bookworm": DEBIAN, "trixie": DEBIAN, "jammy": UBUNTU, "noble": UBUNTU}
DEBOOTSTRAP = Path("/usr/share/debootstrap/scripts")  # one for each suite that it knew when it was released
MODEL = ROOT / "tests/golden/data/models/llama"
MODELS = Path(os.environ.get("QUIRE_MODELS") or Path.home() / ".cache/quire/models")
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = [5, 9, 33, 70, 12, 200, 8]  # tokens of the tiny model
QUESTION = ["-p", "What is the capital of France?", "-n", "12", "--temp", "0", "--json", "--quiet"]
# Not of the package: dpkg's own state, logs and caches.
NOT_INSTALLED = "/dev /proc /sys /tmp /packages /model /models /var/lib/dpkg /var/log /var/cache".split()

# Runs a command in a root whose changes are lost afterwards. Its arguments: the root, and the folders that are /packages, /model and
# /models there; then the arguments of chroot.
ENTER = """
set -e
lower=$1
mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root
cd /mnt/root
mkdir -p proc dev packages model models
mount -t proc proc proc
mount --rbind /dev dev
mount --bind "$2" packages
mount --bind "$3" model
mount --bind "$4" models
shift 4
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root QUIRE_TUNE=off chroot "$@"
"""

SAME_FILES_AFTER_PURGE = f"""
set -e
files() {{ find / {" ".join(f"-path {path} -prune -o" for path in NOT_INSTALLED)} -print | sort; }}
files >/tmp/before
dpkg -i /packages/*.deb >/dev/null
quire --version
test -e /usr/lib/systemd/system/quire.service && test -e /etc/quire/quire.env
dpkg --purge quire >/dev/null
files >/tmp/after
diff /tmp/before /tmp/after
"""

PYTHON_ANSWERS = f"""
from quire import LLM, SamplingParams
(output,) = LLM("/model").generate({{"prompt_token_ids": {PROMPT}}}, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True), use_tqdm=False)
print(list(output.outputs[0].token_ids))
"""


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def models_folder():
    """Where SmolLM2 is; if it is nowhere, a folder without it."""
    return MODELS if (MODELS / SMOLLM2).exists() else MODEL


def command_in(root, packages, command, user=None):
    chroot = [*([f"--userspec={user}"] if user else []), "."]
    return ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(root), str(packages), str(MODEL), str(models_folder()), *chroot, *command]


def run_in(root, packages, command):
    done = subprocess.run(command_in(root, packages, command), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failed(f"{command[0]} exits with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def expect(found, wanted, what):
    if found != wanted:
        raise Failed(f"{what}: {found!r}, not {wanted!r}")


def served(command):
    """The tokens of an answer of the server that `command` starts with "--port 0". The server must end when it is asked to."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "QUIRE_TUNE": "off"})
    try:
        address = re.search(r"http://[^/\s]+:(\d+)", running.stdout.readline())
        if not address:
            raise Failed(f"the server prints no address: {running.communicate(timeout=60)[1].strip()[-500:]}")
        body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        request = urllib.request.Request(f"http://127.0.0.1:{address.group(1)}/v1/completions", json.dumps(body).encode())
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        expect(running.returncode, 0, "exit code of the server")
        return answer["choices"][0]["token_ids"]
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()


@dataclass(frozen=True)
class Answers:
    """What the program answers on this machine, outside any root."""

    served: list  # tokens
    said: str | None  # by SmolLM2, as JSON without times; None without that model


def said(output):
    answer = json.loads(output)
    return json.dumps([answer["text"], answer["tokens"]])


def answers_here(program):
    question = [program, "run", "-m", MODELS / SMOLLM2, *QUESTION]
    done = subprocess.run(question, check=True, capture_output=True, text=True).stdout if (MODELS / SMOLLM2).exists() else None
    return Answers(served([program, "serve", "-m", MODEL, "--port", "0"]), done and said(done))


def expect_works(enter, wanted, release, serve=("serve",)):
    """What a person tries first. enter(arguments): the command that runs the program in a root. serve: how it becomes a server."""

    def output(*arguments):
        done = subprocess.run(enter(*arguments), capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise Failed(f"quire {arguments[0]} exits with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    expect(output("--version"), f"quire {release.version}\n", "quire --version")
    output("verify", "-m", "/model", "/model/expected.safetensors")
    expect(served(enter(*serve, "-m", "/model", "--port", "0")), wanted.served, "tokens of the server's answer")
    if wanted.said:
        expect(said(output("run", "-m", f"/models/{SMOLLM2}", *QUESTION)), wanted.said, "SmolLM2's answer")


def entering(root, packages, program, install):
    """For expect_works. install: shell commands before each run, because changes of the root are lost."""
    return lambda *arguments: command_in(root, packages, ["sh", "-c", f'{install} && exec {program} "$@"', "sh", *arguments])


def check_tarball(root, packages, release, wanted):
    (archive,) = packages.glob("quire-*.tar.gz")
    folder = archive.name.removesuffix(".tar.gz")
    program, unpack = f"/opt/{folder}/bin/quire", f"tar -xzf /packages/{archive.name} -C /opt"
    expect_works(entering(root, packages, program, unpack), wanted, release)
    # Of sources of names that are shared libraries, none may be loaded.
    names = "echo '127.0.0.1 here.test' >>/etc/hosts && echo 'hosts: resolve mymachines [NOTFOUND=return] files' >/etc/nsswitch.conf"
    enter = entering(root, packages, program, f"{unpack} && {names}")
    expect(served(enter("serve", "-m", "/model", "--host", "here.test", "--port", "0")), wanted.served, "tokens at a host of /etc/hosts")
    refused = subprocess.run(enter("verify", "-m", "/model", "/model/expected.safetensors", "--device", "cuda"), capture_output=True, text=True, timeout=60)
    expect((refused.returncode, "statically linked" in refused.stderr), (1, True), "--device cuda")


def check_deb(root, packages, release, wanted):
    expect_works(entering(root, packages, "quire", "dpkg -i /packages/*.deb >/dev/null"), wanted, release)
    expect(run_in(root, packages, ["sh", "-c", SAME_FILES_AFTER_PURGE]), f"quire {release.version}\n", "files after dpkg --purge")


def check_wheel(root, packages, release, wanted):
    (wheel,) = packages.glob("quire-*.whl")
    try:
        version = run_in(root, packages, ["python3", "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    except Failed:
        raise Skipped("the root has no python3 with venv") from None
    if f"-cp{version.replace('.', '')}-" not in wheel.name and "-abi3-" not in wheel.name:
        raise Skipped(f"{wheel.name} is not for its Python {version}")
    with tempfile.TemporaryDirectory() as folder:  # the wheel and what it depends on
        download = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--only-binary=:all:", "--python-version", version]
        if subprocess.run([*download, "-d", folder, wheel]).returncode != 0:
            raise Skipped("pip cannot download what the wheel depends on (see above)")
        install = "python3 -m venv /opt/v && /opt/v/bin/pip install -q --no-index --find-links /packages quire"
        expect_works(entering(root, folder, "/opt/v/bin/quire", install), wanted, release)
        answer = run_in(root, folder, ["sh", "-c", f"{install} && exec /opt/v/bin/python -c '{PYTHON_ANSWERS}'"])
        expect(json.loads(answer.strip().splitlines()[-1]), wanted.served, "tokens of LLM.generate")


def check_image(packages, release, wanted):
    """Unpacked by umoci, and entered as its settings say."""
    (archive,) = packages.glob("quire-*.oci.tar")
    for tool in ("umoci", "skopeo"):
        if not shutil.which(tool):
            raise Skipped(f"no {tool}: apt-get install {tool}")
    subprocess.run(["skopeo", "inspect", f"oci-archive:{archive}"], check=True, stdout=subprocess.DEVNULL)
    settings = json.loads(subprocess.run(["skopeo", "inspect", "--config", f"oci-archive:{archive}"], check=True, capture_output=True).stdout)["config"]
    with tempfile.TemporaryDirectory() as folder:
        layout, bundle = Path(folder, "layout"), Path(folder, "bundle")
        layout.mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", layout], check=True)
        subprocess.run(["umoci", "unpack", "--image", f"{layout}:{release.version}", bundle], check=True, capture_output=True)
        entry = settings["Entrypoint"]
        expect([entry[0], *entry[-2:]], ["quire", "--port", "8080"], "the entry point")

        def enter(*arguments):  # chroot looks commands up in its own PATH
            return command_in(bundle / "rootfs", packages, ["/usr/bin/quire", *arguments], settings["User"])

        expect_works(enter, wanted, release, serve=entry[1:-2])


def make_root(suite, folder):
    """A minimal installation in folder/SUITE, made once."""
    root = folder / suite
    if (root / ".complete").exists():
        return root
    if not shutil.which("debootstrap"):
        raise Skipped("no debootstrap: apt-get install debootstrap")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", suite, root, MIRRORS[suite]]
    if MIRRORS[suite] == UBUNTU:
        command[1:1] = ["--components=main,universe"]
        if not (DEBOOTSTRAP / suite).exists():
            command.append(DEBOOTSTRAP / "gutsy")  # what all later suites are links to
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Skipped(f"debootstrap fails: {done.stdout.strip().splitlines()[-1]}")
    (root / ".complete").touch()
    return root


@contextmanager
def reported(name, counts):
    try:
        yield
    except Skipped as why:
        counts["skipped"] += 1
        print(f"  skipped  {name}: {why}", flush=True)
    except (Failed, subprocess.SubprocessError, OSError, ValueError) as why:
        counts["failed"] += 1
        print(f"  FAILED   {name}: {why}", flush=True)
    else:
        counts["passed"] += 1
        print(f"  ok       {name}", flush=True)


def check(packages, kinds, suites, release, roots):
    """Checks the packages of `kinds` in `packages` in a root of each suite, and prints a line for each. Returns whether none failed."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    sums = (packages / "SHA256SUMS").read_text().splitlines()
    with reported("SHA256SUMS", counts):
        for digest, name in (line.split("  ") for line in sums):
            expect(hashlib.sha256((packages / name).read_bytes()).hexdigest(), digest, name)
    usable = os.geteuid() == 0 and shutil.which("unshare")
    wanted = answers_here(release.program) if usable else None
    if usable and not wanted.said:
        print(f"  skipped  SmolLM2's answers: {MODELS / SMOLLM2} is missing: ./dev fetch")
    if "image" in kinds:
        with reported("image", counts):
            if not usable:
                raise Skipped("entering a root takes root's rights and unshare")
            check_image(packages, release, wanted)
    by_kind = {"tarball": check_tarball, "deb": check_deb, "wheel": check_wheel}
    for suite in suites if set(kinds) & set(by_kind) else []:
        root = None
        with reported(f"root of {suite}", counts):
            if not usable:
                raise Skipped("making and entering a root takes root's rights and unshare")
            root = make_root(suite, roots)
        for kind in kinds if root else []:
            if kind in by_kind:
                with reported(f"{kind} in {suite}", counts):
                    by_kind[kind](root, packages, release, wanted)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    return counts["failed"] == 0
