"""What the static program contains: found in the inputs of its link and the headers of its compilations, not listed by hand."""

import hashlib
import json
import platform
import re
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

# SPDX expressions by Debian's source package. What `copyright` files say is not always one; a person reads them once.
LICENCES = {
    "boost": "BSL-1.0",
    "cli11": "BSD-3-Clause",
    "cppzmq": "MIT",
    "curl": "curl",
    "eigen3": "MPL-2.0",
    "fmtlib": "MIT",
    "gcc": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "hiredis": "BSD-3-Clause",
    "hwloc": "BSD-3-Clause",
    "libbsd": "BSD-3-Clause AND BSD-2-Clause AND ISC",
    "libedit": "BSD-3-Clause",
    "libmd": "BSD-3-Clause AND BSD-2-Clause AND ISC",
    "ncurses": "X11-distribute-modifications-variant",
    "nlohmann-json3": "MIT",
    "openssl": "Apache-2.0",
    "pcre2": "BSD-3-Clause",
    "prometheus-cpp": "MIT",
    "spdlog": "MIT",
    "sqlite3": "blessing",
    "utf8proc": "MIT AND Unicode-DFS-2015",
    "xxhash": "BSD-2-Clause",
    "zeromq3": "LGPL-3.0-or-later WITH LGPL-3.0-linking-exception",
    "zlib": "Zlib",
}


@dataclass(order=True)
class Component:
    """A source package of the distribution that the program contains parts of."""

    source: str
    version: str
    licence: str
    packages: list = field(default_factory=list)  # binary packages: what /usr/share/doc has their licences
    archives: list = field(default_factory=list)  # libNAME.a, as far as linked


def licence_of(source):
    licence = LICENCES.get(source) or LICENCES.get(re.sub(r"[-\d.]+$", "", source))
    if not licence:
        raise SystemExit(f"package.py: scripts/release/components.py does not know the licence of {source}; add the SPDX name")
    return licence


def owners(paths):
    """{path: binary package} by dpkg. Some packages list files of /usr/lib below /lib, which is the same folder."""
    found = {}
    for names in ({path: path for path in paths}, {path.removeprefix("/usr"): path for path in paths}):
        done = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            package, _, path = line.partition(": ")
            found.setdefault(names.get(path), package.split(",")[0].split(":")[0])
    return found


def linked_archives(map_file):
    """Archives in the map of the linker that members were taken from; those of this repository have relative paths."""
    text = map_file.read_text().split("\nDiscarded input sections\n")[0].split("\nMemory Configuration\n")[0]
    return sorted({str(Path(path).resolve()) for path in re.findall(r"^(/\S+\.a)\(", text, re.M)})


def included_headers(build):
    deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    return sorted({str(Path(path).resolve()) for path in re.findall(r"^ +(/usr/\S+)", deps, re.M)})


def components_of(build, static_libraries):
    """The Components of build/quire_static. static_libraries: the folder of static_libraries.sh."""
    own = {line.split()[0]: line.split()[1:] for line in (static_libraries / "sources").read_text().splitlines()}
    archives = linked_archives(build / "quire_static.map")
    # Of an archive of static_libraries.sh, the distribution's package has the licence.
    shipped = [f"/usr/lib/{platform.machine()}-linux-gnu/{Path(path).name}" for path in archives if path.startswith(str(static_libraries))]
    owner = owners([path for path in archives + included_headers(build) if not path.startswith(str(static_libraries))] + shipped)
    versions = {source: version for source, version in own.values()}
    found = {}
    if owner:
        rows = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${source:Package}\t${source:Version}\n", *sorted(set(owner.values()))], capture_output=True, text=True, check=True).stdout
        for package, source, version in (row.split("\t") for row in rows.splitlines()):
            if source == "linux":  # numbers and structures of the kernel's interface
                continue
            component = found.setdefault(source, Component(source, versions.get(source, version), licence_of(source)))
            component.packages.append(package)
    for path in archives:
        source = own[Path(path).stem.removeprefix("lib")][0] if path.startswith(str(static_libraries)) else None
        for component in found.values():
            if component.source == source or owner.get(path) in component.packages:
                component.archives.append(Path(path).name)
                break
        else:
            raise SystemExit(f"package.py: no package of this system has {path}, so its licence is unknown; packages are made on Debian")
    return sorted(found.values())


def licence_texts(components):
    """The copyright files of the components, one after the other."""
    parts = []
    for component in components:
        texts = {(Path("/usr/share/doc") / package / "copyright").read_text() for package in component.packages}
        parts.append(f"{'=' * 80}\n{component.source} {component.version}\n{'=' * 80}\n\n" + "\n".join(sorted(texts)))
    return "\n\n".join(parts)


def sbom(version, program, epoch, components):
    """An SPDX 2.3 document, as JSON: the program (its bytes) and what it contains."""
    digest = hashlib.sha256(program).hexdigest()

    def described(name, number, licence, **more):
        identifier = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)
        return {"SPDXID": identifier, "name": name, "versionInfo": number, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
                "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION", **more}

    packages = [described("quire", version, "Apache-2.0", primaryPackagePurpose="APPLICATION", checksums=[{"algorithm": "SHA256", "checksumValue": digest}])]
    for component in components:
        purl = f"pkg:deb/debian/{component.source}@{component.version.replace(':', '%3A').replace('+', '%2B')}?arch=source"
        reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
        linked = {"comment": "linked: " + ", ".join(component.archives)} if component.archives else {"comment": "headers only"}
        packages.append(described(component.source, component.version, component.licence, externalRefs=[reference], **linked))
    contained = [{"spdxElementId": "SPDXRef-quire", "relationshipType": "CONTAINS", "relatedSpdxElement": package["SPDXID"]} for package in packages[1:]]
    return json.dumps({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"quire-{version}",
        "documentNamespace": f"https://github.com/quire-llm/quire/spdx/{version}-{digest}",
        "creationInfo": {"created": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: quire-package"]},
        "packages": packages,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-quire"}, *contained],
    }, indent=1) + "\n"
