#!/usr/bin/env python3
"""Makes packages of Quire in build/package: what `./dev package` does (docs/install.md).

  tarball  quire-VERSION-linux-MACHINE.tar.gz: the program, linked statically, with man pages and completions
  deb      quire_VERSION_ARCHITECTURE.deb: the same with a systemd unit, for every Debian and Ubuntu
  image    quire-VERSION-MACHINE.oci.tar: a container image of the program and certificates
  wheel    the Python package, whose module has the same program inside
  program  only the program, in build/portable, with what `./dev wheel` says of its libraries

Also writes the list of components (SPDX) and SHA256SUMS. The bytes depend on the commit and the build packages alone.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release import clean_roots, formats
from release.components import components_of
from release.contents import ROOT, Release, deb_files, descriptions, image_files, image_settings, tarball_files

KINDS = ("tarball", "deb", "image", "wheel")
PACKAGES = ROOT / "build/package"
STATIC_LIBRARIES = ROOT / "build/static-libraries"


def time_of_the_commit():
    """Seconds: $SOURCE_DATE_EPOCH, or when the last commit was made."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given:
        if not given.isdecimal():
            raise SystemExit(f"package.py: SOURCE_DATE_EPOCH must be seconds since 1970, not {given!r}")
        return int(given)
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("package.py: this folder is no git repository; set SOURCE_DATE_EPOCH to the time of the sources")
    return int(done.stdout)


def build():
    """Compiles the program, and returns what packages are made of."""
    subprocess.run([ROOT / "scripts/release/static_libraries.sh"], check=True)
    subprocess.run([ROOT / "dev", "build", "portable", "quire_static"], check=True)
    tree = ROOT / "build/portable"
    program = tree / "quire_static"
    traces = sorted(set(re.findall(re.escape(str(ROOT)).encode() + rb"[^\0]*", program.read_bytes())))
    if traces:
        raise SystemExit(f"package.py: the program names this folder: {traces[0].decode()}")
    version = re.search(r"project\(quire VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    release = Release(version, platform.machine(), time_of_the_commit(), program, components_of(tree, STATIC_LIBRARIES))
    for name, data in descriptions(release).items():
        (tree / name).write_bytes(data)
    return release


def write_wheel(release):
    subprocess.run([ROOT / "dev", "wheel"], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch)}, stdout=subprocess.DEVNULL)
    (wheel,) = (ROOT / "build/wheel").glob("*.whl")
    shutil.copy(wheel, PACKAGES)
    return wheel.name


def write(kind, release):
    """Returns the name of the file in PACKAGES."""
    name, machine = f"quire-{release.version}", release.machine
    if kind == "wheel":
        return write_wheel(release)
    if kind == "tarball":
        file, data = f"{name}-linux-{machine}.tar.gz", formats.tarball(tarball_files(release), f"{name}-linux-{machine}", release.epoch)
    elif kind == "deb":
        file = f"quire_{release.version}_{formats.OCI_MACHINES[machine]}.deb"  # Debian's names of machines are the same
        data = formats.deb(deb_files(release), release.epoch)
    else:
        file, data = f"{name}-{machine}.oci.tar", formats.image(image_files(release), image_settings(release), machine, release.version, release.epoch)
    (PACKAGES / file).write_bytes(data)
    return file


def same_again(kinds):
    """Builds the commit once more in another folder, without a compiler cache, and compares the checksums of all packages."""
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "quire"
        subprocess.run(["git", "clone", "-q", ROOT, again], check=True)
        subprocess.run([again / "dev", "package", *kinds], check=True, env={**os.environ, "CCACHE_DISABLE": "1"}, stdout=subprocess.DEVNULL)
        first, second = (dict(line.split("  ")[::-1] for line in (packages / "SHA256SUMS").read_text().splitlines()) for packages in (PACKAGES, again / "build/package"))
    for name in sorted(first):
        print(f"  {'the same' if first[name] == second.get(name) else 'DIFFERENT'}  {name}")
    return first == second


def main():
    parser = argparse.ArgumentParser(prog="./dev package", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="tarball, deb, image, wheel, program or all (default: all)")
    parser.add_argument("--check", action="store_true", help="use each package in clean roots of distributions, made by debootstrap in build/roots; takes root's rights")
    parser.add_argument("--roots", default="bookworm,trixie", metavar="LIST", help=f"distributions for --check: {', '.join(clean_roots.MIRRORS)} (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="build the last commit once more elsewhere, without a compiler cache, and compare the packages bit for bit")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        if kind not in (*KINDS, "program", "all"):
            parser.error(f"there is no kind of package called '{kind}'; there are {', '.join(KINDS)}, program and all")
    kinds = [kind for kind in KINDS if kind in arguments.kinds or not arguments.kinds or "all" in arguments.kinds]
    suites = arguments.roots.split(",")
    for suite in suites:
        if suite not in clean_roots.MIRRORS:
            parser.error(f"--roots {suite}: there are {', '.join(clean_roots.MIRRORS)}")
    if platform.machine() not in formats.OCI_MACHINES:
        raise SystemExit(f"package.py: machines are {', '.join(formats.OCI_MACHINES)}, not {platform.machine()}")

    release = build()
    if not kinds:
        return 0
    shutil.rmtree(PACKAGES, ignore_errors=True)
    PACKAGES.mkdir(parents=True)
    files = [write(kind, release) for kind in kinds]
    files.append(f"quire-{release.version}.spdx.json")
    (PACKAGES / files[-1]).write_bytes(descriptions(release)["sbom.spdx.json"])
    sums = "".join(f"{hashlib.sha256((PACKAGES / file).read_bytes()).hexdigest()}  {file}\n" for file in sorted(files))
    (PACKAGES / "SHA256SUMS").write_text(sums)
    for file in files:
        print(f"{(PACKAGES / file).stat().st_size / 1e6:6.1f} MB  build/package/{file}")
    good = not arguments.check or clean_roots.check(PACKAGES, kinds, suites, release, ROOT / "build/roots")
    return 0 if (not arguments.again or same_again(kinds)) and good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"package.py: {Path(str(failed.cmd[0])).name} failed (see above)")
