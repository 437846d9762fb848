"""The files of a package, as a value: {path: Entry}, with paths relative to the root or the prefix of an installation."""

import gzip
import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from release.components import licence_texts, sbom
from release.man_pages import man_pages

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Entry:
    mode: int
    data: bytes | None = None  # None: a directory
    owner: int = 0  # user and group


@dataclass(frozen=True)
class Release:
    """What all packages are made of."""

    version: str
    machine: str  # as `uname -m` says
    epoch: int  # seconds; the time of everything in packages
    program: Path  # statically linked, stripped
    components: list


def zipped(data):
    return gzip.compress(data, 9, mtime=0)


def descriptions(release):
    """What goes with the program wherever it goes: the licences and the list of its components."""
    return {
        "THIRD-PARTY-LICENSES.gz": zipped(licence_texts(release.components).encode()),
        "sbom.spdx.json": sbom(release.version, release.program.read_bytes(), release.epoch, release.components).encode(),
    }


def installed_files(release, zsh="share/zsh/site-functions"):
    """What lies below a prefix such as /usr: the program, its man pages, completions, licences and the list of its components."""
    files = {"bin/quire": Entry(0o755, release.program.read_bytes())}
    for name, text in man_pages(release.program, release.version, release.epoch).items():
        files[f"share/man/man1/{name}.gz"] = Entry(0o644, zipped(text.encode()))
    for shell, place in {"bash": "share/bash-completion/completions/quire", "zsh": f"{zsh}/_quire", "fish": "share/fish/vendor_completions.d/quire.fish"}.items():
        files[place] = Entry(0o644, subprocess.run([release.program, "completion", shell], capture_output=True, check=True).stdout)
    documents = {"LICENSE": (ROOT / "LICENSE").read_bytes()} | descriptions(release)
    files |= {f"share/doc/quire/{name}": Entry(0o644, data) for name, data in documents.items()}
    return files


def tarball_files(release):
    """bin/ and share/, to be used in place or copied to /usr/local, and the systemd unit, which expects the program there."""
    unit = {f"share/doc/quire/{name}": Entry(0o644, (ROOT / "deploy" / name).read_bytes()) for name in ("quire.service", "quire.env")}
    return installed_files(release) | unit


CONTROL = """\
Package: quire
Version: {version}
Architecture: {architecture}
Maintainer: Quire authors <quire-llm@users.noreply.github.com>
Section: science
Priority: optional
Homepage: https://github.com/quire-llm/quire
Installed-Size: {kib}
Recommends: ca-certificates
Static-Built-Using: {components}
Description: server and command line for large language models on CPUs
 Quire runs language models of GGUF files and Hugging Face directories in the
 terminal and behind the APIs of OpenAI, Anthropic and Ollama. The program is
 linked statically: it needs no other package.
"""

COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: quire
Source: https://github.com/quire-llm/quire
Comment: /usr/share/doc/quire/THIRD-PARTY-LICENSES.gz has the licences of the libraries in the program.

Files: *
Copyright: Quire authors
License: Apache-2.0
 On Debian systems, /usr/share/common-licenses/Apache-2.0 has the full text.
"""

# The service is neither enabled nor started by the installation: it needs a model first.
SCRIPTS = {
    "postinst": """\
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ -n "$2" ]; then systemctl try-restart quire.service; fi
fi
""",
    "prerm": """\
#!/bin/sh
set -e
if [ "$1" = remove ] && command -v systemctl >/dev/null; then
  if [ -d /run/systemd/system ]; then systemctl stop quire.service; fi
  systemctl --quiet disable quire.service
fi
""",
    "postrm": """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
""",
}


def deb_files(release):
    """Everything of the .deb, its control files in DEBIAN/, as dpkg-deb reads them."""
    files = {f"usr/{path}": entry for path, entry in installed_files(release, zsh="share/zsh/vendor-completions").items()}
    del files["usr/share/doc/quire/LICENSE"]  # Debian has it
    files["usr/share/doc/quire/copyright"] = Entry(0o644, COPYRIGHT.encode())
    unit = (ROOT / "deploy/quire.service").read_text().replace("/usr/local/bin/quire", "/usr/bin/quire")
    files["usr/lib/systemd/system/quire.service"] = Entry(0o644, unit.replace("/etc/systemd/system/", "/usr/lib/systemd/system/").encode())
    files["etc/quire/quire.env"] = Entry(0o600, (ROOT / "deploy/quire.env").read_bytes())
    sums = "".join(f"{hashlib.md5(entry.data).hexdigest()}  {path}\n" for path, entry in sorted(files.items()) if not path.startswith("etc/"))
    control = CONTROL.format(
        version=release.version,
        architecture={"x86_64": "amd64", "aarch64": "arm64"}[release.machine],
        kib=sum(len(entry.data) // 1024 + 1 for entry in files.values()),
        components=", ".join(f"{component.source} (= {component.version})" for component in release.components),
    )
    files["DEBIAN/control"] = Entry(0o644, control.encode())
    files["DEBIAN/conffiles"] = Entry(0o644, b"/etc/quire/quire.env\n")
    files["DEBIAN/md5sums"] = Entry(0o644, sums.encode())
    return files | {f"DEBIAN/{name}": Entry(0o755, text.encode()) for name, text in SCRIPTS.items()}


IMAGE_USER = 10001


def image_files(release):
    """The root of the image: the program and what it reads of a system. There is no shell."""
    home = "var/lib/quire"
    certificates = b"".join(path.read_bytes() for path in sorted(Path("/usr/share/ca-certificates/mozilla").glob("*.crt")))
    if not certificates:
        raise SystemExit("package.py: /usr/share/ca-certificates/mozilla has no certificates; install ca-certificates")
    users = f"root:x:0:0::/:/sbin/nologin\nquire:x:{IMAGE_USER}:{IMAGE_USER}::/{home}:/sbin/nologin\n"
    files = {f"usr/{path}": entry for path, entry in installed_files(release).items() if path.startswith(("bin/", "share/doc/"))}
    return files | {
        "etc/passwd": Entry(0o644, users.encode()),
        "etc/group": Entry(0o644, f"root:x:0:\nquire:x:{IMAGE_USER}:\n".encode()),
        "etc/ssl/certs/ca-certificates.crt": Entry(0o644, certificates),
        "usr/share/doc/ca-certificates/copyright": Entry(0o644, Path("/usr/share/doc/ca-certificates/copyright").read_bytes()),
        "models": Entry(0o755),
        "tmp": Entry(0o1777),
        home: Entry(0o755, None, IMAGE_USER),
    }


def image_settings(release):
    """`config` of an OCI image: the same entry point, user and port as deploy/Dockerfile. Downloads go to the volume."""
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    entry = json.loads(next(line for line in dockerfile.splitlines() if line.startswith("ENTRYPOINT")).removeprefix("ENTRYPOINT"))
    labels = {"title": "quire", "version": release.version, "licenses": "Apache-2.0", "source": "https://github.com/quire-llm/quire"}
    return {
        "User": f"{IMAGE_USER}:{IMAGE_USER}",
        "ExposedPorts": {"8080/tcp": {}},
        "Env": ["PATH=/usr/bin", "HOME=/var/lib/quire"],
        "Entrypoint": entry,
        "Volumes": {"/var/lib/quire": {}},
        "WorkingDir": "/",
        "StopSignal": "SIGTERM",
        "Labels": {f"org.opencontainers.image.{name}": value for name, value in labels.items()},
    }
