"""Packages as files: archives whose bytes depend on their contents alone."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from release.contents import Entry, zipped

# The names that OCI has for machines.
OCI_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def with_folders(files):
    """The same files with an entry for each folder above them."""
    folders = {str(folder): Entry(0o755) for path in files for folder in PurePosixPath(path).parents if str(folder) != "."}
    return folders | files


def tar(files, epoch):
    """A tar archive: sorted names, root as the owner unless an entry says otherwise, one time for all."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, entry in sorted(with_folders(files).items()):
            member = tarfile.TarInfo(path)
            member.mode, member.mtime, member.uid, member.gid = entry.mode, epoch, entry.owner, entry.owner
            if entry.data is None:
                member.type = tarfile.DIRTYPE
            member.size = len(entry.data or b"")
            archive.addfile(member, io.BytesIO(entry.data or b""))
    return out.getvalue()


def tarball(files, top, epoch):
    """A .tar.gz that unpacks into the folder `top`."""
    return zipped(tar({f"{top}/{path}": entry for path, entry in files.items()}, epoch))


def deb(files, epoch):
    """A .deb by dpkg-deb. It gives all files that are newer than SOURCE_DATE_EPOCH that time."""
    with tempfile.TemporaryDirectory() as folder:
        for path, entry in sorted(with_folders(files).items()):
            place = Path(folder, "root", path)
            if entry.data is None:
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.write_bytes(entry.data)
            place.chmod(entry.mode)
        Path(folder, "root").chmod(0o755)
        # xz, because dpkg of Debian 11 cannot read zstd; one thread, because the number of threads changes the bytes.
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", f"{folder}/root", f"{folder}/quire.deb"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})
        return Path(folder, "quire.deb").read_bytes()


def image(files, settings, machine, version, epoch):
    """An OCI image of one layer as a tar archive (oci-archive). `docker load` of before OCI reads manifest.json in it."""
    layer = tar(files, epoch)
    time = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    blobs = {}

    def add(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = Entry(0o644, data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def in_json(value):
        return json.dumps(value, sort_keys=True).encode()

    packed = add(zipped(layer), "layer.v1.tar+gzip")
    config = add(in_json({
        "architecture": OCI_MACHINES[machine],
        "os": "linux",
        "created": time,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": time, "created_by": "./dev package"}],
    }), "config.v1+json")
    manifest = add(in_json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [packed]}), "manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/quire:{version}"}
    blob = {digest["digest"]: "blobs/sha256/" + digest["digest"].removeprefix("sha256:") for digest in (config, packed)}
    blobs["oci-layout"] = Entry(0o644, in_json({"imageLayoutVersion": "1.0.0"}))
    blobs["index.json"] = Entry(0o644, in_json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}))
    blobs["manifest.json"] = Entry(0o644, in_json([{"Config": blob[config["digest"]], "RepoTags": [f"quire:{version}"], "Layers": [blob[packed["digest"]]]}]))
    return tar(blobs, epoch)
