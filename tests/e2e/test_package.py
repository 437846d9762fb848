"""What ./dev package makes, without the static build: contents, archives and the list of components. `./dev package --check` uses them."""

import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from conftest import QUIRE, ROOT, quire, skip_without_binary

sys.path.insert(0, str(ROOT / "scripts"))
from release import formats  # noqa: E402
from release.components import Component, components_of, licence_of, licence_texts, sbom  # noqa: E402
from release.contents import Entry, Release, deb_files, image_files, image_settings, tarball_files  # noqa: E402
from release.man_pages import man_pages  # noqa: E402

EPOCH = 1_700_000_000


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """With a small program, which compresses in no time."""
    skip_without_binary()
    program = tmp_path_factory.mktemp("program") / "quire"
    program.write_text(f'#!/bin/sh\nexec {QUIRE} "$@"\n')
    program.chmod(0o755)
    return Release("1.2.3", "x86_64", EPOCH, program, [Component("zlib", "1:1.3", "Zlib", [], ["libz.a"])])


def commands(*command):
    yield command
    listed = re.search(r"\n(?:Subc|C)ommands:\n((?:  .*\n)+)", quire(*command, "--help").stdout)
    for name in re.findall(r"^  (\w+) ", listed.group(1) if listed else "", re.M):
        yield from commands(*command, name)


def test_every_command_has_a_man_page_with_all_its_flags():
    skip_without_binary()
    pages = man_pages(QUIRE, "1.2.3", EPOCH)
    wanted = {"-".join(("quire", *command)) + ".1": command for command in commands()}
    assert pages.keys() == wanted.keys() and len(pages) > 20
    for name, command in wanted.items():
        terms = re.findall(r"^\.TP\n\\fB(.*)\\fR$", pages[name].replace("\\-", "-"), re.M)
        flags = re.findall(r"^  (-.*)$", quire(*command, "--help").stdout, re.M)
        assert flags and set(flags) <= set(terms), name
        assert '.TH QUIRE' in pages[name] and '2023-11-14 "quire 1.2.3"' in pages[name]


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_man_pages_are_valid():
    skip_without_binary()
    for name, page in man_pages(QUIRE, "1.2.3", EPOCH).items():
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, capture_output=True, text=True)
        serious = [line for line in done.stderr.splitlines() if "cannot adjust" not in line and "can't break" not in line]
        assert done.returncode == 0 and not serious, (name, serious)


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: (member, archive.extractfile(member).read() if member.isfile() else None) for member in archive}


def test_the_tarball_depends_on_its_contents_alone(release):
    data = formats.tarball(tarball_files(release), "top", EPOCH)
    assert data == formats.tarball(tarball_files(release), "top", EPOCH)
    found = members(data)
    assert list(found) == sorted(found)
    for member, _ in found.values():
        assert (member.uid, member.gid, member.mtime) == (0, 0, EPOCH)
        assert member.mode == (0o755 if member.isdir() or member.name == "top/bin/quire" else 0o644), member.name
    assert found["top/bin/quire"][1] == release.program.read_bytes()
    assert b"quire" in found["top/share/bash-completion/completions/quire"][1]
    assert gzip.decompress(found["top/share/man/man1/quire-serve.1.gz"][1]).startswith(b".TH QUIRE-SERVE")


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="no dpkg-deb")
def test_the_deb_has_a_unit_that_starts_its_program(release, tmp_path):
    files = deb_files(release)
    data = formats.deb(files, EPOCH)
    assert data == formats.deb(files, EPOCH)
    package = tmp_path / "quire.deb"
    package.write_bytes(data)
    fields = subprocess.run(["dpkg-deb", "-f", package, "Package", "Version", "Architecture", "Depends"], check=True, capture_output=True, text=True).stdout
    assert fields.split("\n")[:3] == ["Package: quire", "Version: 1.2.3", "Architecture: amd64"] and "Depends" not in fields
    found = members(subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout)
    unit = found["./usr/lib/systemd/system/quire.service"][1].decode()
    program = re.search(r"^ExecStart=(\S+) serve", unit, re.M).group(1)
    assert found["." + program][0].mode == 0o755
    settings = re.search(r"^EnvironmentFile=(\S+)", unit, re.M).group(1)
    assert found["." + settings][0].mode == 0o600 and settings + "\n" == files["DEBIAN/conffiles"].data.decode()
    assert all((member.uid, member.gid, member.mtime) == (0, 0, EPOCH) for member, _ in found.values())
    for name in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n"], input=files[f"DEBIAN/{name}"].data, check=True)


def test_the_images_digests_are_those_of_its_blobs(release):
    def image():
        return formats.image(image_files(release), image_settings(release), "x86_64", "1.2.3", EPOCH)

    data = image()
    assert data == image()
    found = {name: content for name, (_, content) in members(data).items()}

    def blob(descriptor):
        content = found["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        assert (len(content), "sha256:" + hashlib.sha256(content).hexdigest()) == (descriptor["size"], descriptor["digest"])
        return content

    manifest = json.loads(blob(json.loads(found["index.json"])["manifests"][0]))
    config, (layer,) = json.loads(blob(manifest["config"])), manifest["layers"]
    root = gzip.decompress(blob(layer))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(root).hexdigest()]
    files = members(root)
    user = int(config["config"]["User"].split(":")[0])
    assert user != 0 and f":{user}:{user}:".encode() in files["etc/passwd"][1]
    (home,) = config["config"]["Volumes"]
    assert files[home.strip("/")][0].uid == user and f"HOME={home}" in config["config"]["Env"]
    assert files["etc/ssl/certs/ca-certificates.crt"][1].startswith(b"-----BEGIN CERTIFICATE-----")


@pytest.fixture(scope="module")
def static_tree(tmp_path_factory):
    """A build tree like build/portable, of a program that needs zlib and, from a source package, fmt."""
    for tool in ("c++", "ninja", "dpkg-query"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}")
    tree = tmp_path_factory.mktemp("static")
    own = tree / "libraries"
    (own / "lib").mkdir(parents=True)
    (tree / "fmt.cc").write_text("int formatted() { return 1; }\n")
    (tree / "main.cc").write_text("#include <fmt/core.h>\n#include <zlib.h>\nint formatted();\nint main() { return formatted() + (*zlibVersion() == '1'); }\n")
    (tree / "build.ninja").write_text(
        "rule compile\n  command = c++ -MD -MF $out.d -c $in -o $out\n  deps = gcc\n  depfile = $out.d\n"
        f"rule link\n  command = ar rc {own}/lib/libfmt.a fmt.o && c++ -static -o $out main.o -L{own}/lib -lfmt -lz -Wl,-Map=$out.map\n"
        "build main.o: compile main.cc\nbuild fmt.o: compile fmt.cc\nbuild quire_static: link main.o fmt.o\n"
    )
    (own / "sources").write_text("fmt fmtlib 99.1-1\n")
    subprocess.run(["ninja", "-C", tree], check=True, capture_output=True)
    return tree


def test_the_components_are_what_was_linked_and_included(static_tree):
    found = {component.source: component for component in components_of(static_tree, static_tree / "libraries")}
    assert {"zlib", "glibc", "fmtlib"} <= found.keys()
    assert found["zlib"].archives == ["libz.a"] and found["zlib"].licence == "Zlib"
    assert (found["fmtlib"].version, found["fmtlib"].archives) == ("99.1-1", ["libfmt.a"])  # of the library that was built, not of the header
    linked = set(re.findall(r"/(lib[^/\s]+\.a)\(", (static_tree / "quire_static.map").read_text()))
    assert linked == {archive for component in found.values() for archive in component.archives}
    text = licence_texts(found.values())
    assert all(f"{component.source} {component.version}" in text for component in found.values()) and "Jean-loup Gailly" in text


def test_the_list_of_components_is_spdx(static_tree):
    components = components_of(static_tree, static_tree / "libraries")
    document = json.loads(sbom("1.2.3", b"program", EPOCH, components))
    assert document["spdxVersion"] == "SPDX-2.3" and document["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    packages = {package["name"]: package for package in document["packages"]}
    assert packages.keys() == {"quire", *(component.source for component in components)}
    assert packages["quire"]["checksums"][0]["checksumValue"] == hashlib.sha256(b"program").hexdigest()
    identifiers = {package["SPDXID"] for package in document["packages"]}
    assert len(identifiers) == len(packages) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in identifiers)
    related = {relation["relatedSpdxElement"] for relation in document["relationships"]}
    assert related == identifiers


def test_a_component_of_unknown_licence_stops_the_release():
    with pytest.raises(SystemExit, match="licence of libunheard"):
        licence_of("libunheard")
    assert licence_of("boost1.83") == licence_of("boost1.81") == "BSL-1.0"


def test_files_bring_their_folders():
    assert list(formats.with_folders({"a/b/c": Entry(0o644, b"")})) == ["a/b", "a", "a/b/c"]
    assert formats.with_folders({"a": Entry(0o700), "a/b": Entry(0o644, b"")})["a"].mode == 0o700


@pytest.mark.parametrize(
    "arguments, message",
    [(["rpm"], "no kind of package called 'rpm'"), (["--roots", "fedora"], "--roots fedora: there are"), (["--rots", "x"], "--rots")],
)
def test_a_wrong_command_line_is_refused(arguments, message):
    done = subprocess.run([sys.executable, ROOT / "scripts/package.py", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr


def test_the_time_must_be_a_number():
    script = "import sys; sys.path.insert(0, 'scripts'); import package; package.time_of_the_commit()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env={"SOURCE_DATE_EPOCH": "today"})
    assert done.returncode == 1 and "SOURCE_DATE_EPOCH must be seconds since 1970, not 'today'" in done.stderr
