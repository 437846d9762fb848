"""A Hugging Face hub and an Ollama registry on this machine, for tests: the API, files behind redirects to a second host, and all that can go wrong."""

import contextlib
import hashlib
import json
import re
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    files: dict  # path: content
    commit: str = COMMIT
    token: str = ""  # needed to read it
    gated: bool = False
    sizes: dict = field(default_factory=dict)  # sizes that the hub claims

    def is_large(self, path):
        """Stored by git-lfs or Xet: named by the SHA-256, and on the second host."""
        return path.endswith((".gguf", ".safetensors"))

    def etag(self, path):
        return hashlib.sha256(self.files[path]).hexdigest() if self.is_large(path) else git_sha1(self.files[path])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        hub, is_cdn = self.server.hub, self.server.is_cdn
        url = urllib.parse.urlsplit(self.path)
        if url.scheme:  # asked as a proxy
            hub.proxied.append(self.path)
        path = urllib.parse.unquote(url.path)
        with hub.lock:
            hub.requests.append((("cdn" if is_cdn else "hub"), self.command, path, dict(self.headers)))
            fault = next((f for f in hub.faults if f["count"] > 0 and re.search(f["path"], path) and f["method"] in ("", self.command)), None)
            if fault:
                fault["count"] -= 1
        if fault and fault["status"]:
            return self.reply(fault["status"], b"fault", fault["headers"])
        cut = fault["cut"] if fault else None
        if is_cdn:
            return self.send_content(hub.blobs.get(path.strip("/")), {}, cut)
        for pattern, method in [
            (r"/api/models/(.+?)/revision/(.+)", self.describe_repo),
            (r"/v2/(.+)/manifests/(.+)", self.send_manifest),
            (r"/v2/(.+)/blobs/sha256:(\w+)", self.redirect_to_layer),
            (r"/files/(.+)", self.send_file),
            (r"/(.+?)/resolve/([^/]+)/(.+)", self.resolve),
        ]:
            if match := re.fullmatch(pattern, path):
                return method(*match.groups(), cut) if method in (self.resolve, self.send_file) else method(*match.groups())
        return self.reply(404, b"")

    def reply(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def find_repo(self, name):
        """The repository, or None after an answer that says why not."""
        hub = self.server.hub
        if name in hub.renamed:
            self.reply(307, b"", {"Location": self.path.replace(name, hub.renamed[name])})
            return None
        repo = hub.repos.get(name)
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo is None or (repo.token and not repo.gated and given != repo.token):
            self.reply(401 if not given else 404, b"", {"X-Error-Code": "RepoNotFound"})
            return None
        return repo

    def describe_repo(self, name, revision):
        if not (repo := self.find_repo(name)):
            return
        if revision not in ("main", repo.commit):
            return self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
        siblings = [
            {"rfilename": path, "size": repo.sizes.get(path, len(data)), "blobId": git_sha1(data)}
            | ({"lfs": {"sha256": repo.etag(path), "size": len(data)}} if repo.is_large(path) else {})
            for path, data in repo.files.items()
        ]
        body = {"id": name, "modelId": name, "sha": repo.commit, "gated": "manual" if repo.gated else False, "siblings": siblings}
        self.reply(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def resolve(self, name, revision, path, cut):
        if not (repo := self.find_repo(name)):
            return
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo.gated and given != repo.token:
            return self.reply(403 if given else 401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted."})
        if path not in repo.files:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repo.commit})
        data = repo.files[path]
        headers = {"X-Repo-Commit": repo.commit}
        if not repo.is_large(path):
            return self.send_content(data, headers | {"ETag": f'"{repo.etag(path)}"'}, cut)
        hub = self.server.hub
        headers |= {
            "X-Linked-Etag": f'"{repo.etag(path)}"',
            "X-Linked-Size": str(repo.sizes.get(path, len(data))),
            "ETag": f'"{git_sha1(data)}"',
            "Location": hub.cdn_url(repo.etag(path)),
        } | hub.redirect_headers
        hub.blobs.setdefault(repo.etag(path), data)
        self.reply(302, b"Found. Redirecting", headers)

    def send_manifest(self, name, tag):
        manifest = self.server.hub.manifests.get((name, tag))
        self.reply(200, manifest) if manifest else self.reply(404, b'{"errors": []}')

    def redirect_to_layer(self, _, digest):
        self.reply(307, b"", {"Location": self.server.hub.cdn_url(digest)})

    def send_file(self, path, cut):
        data = self.server.hub.files.get(path)
        self.send_content(data, {"ETag": f'"{hashlib.md5(data or b"").hexdigest()}"'}, cut)

    def send_content(self, data, headers, cut):
        """cut: bytes after which the connection is closed"""
        hub = self.server.hub
        if data is None:
            return self.reply(404, b"")
        begin, end = 0, len(data)
        if (asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) and hub.has_ranges:
            begin, end = int(asked[1]), min(int(asked[2] or end) + 1, end)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        else:
            self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        if hub.has_ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command == "HEAD":
            return
        body = data[begin:end]
        if cut is not None:
            self.wfile.write(body[:cut])
            self.close_connection = True
            return
        step = 1 << 18
        for at in range(0, len(body), step):
            self.wfile.write(body[at : at + step])
            with hub.lock:
                hub.bytes_sent += len(body[at : at + step])
            if hub.seconds_per_step:
                time.sleep(hub.seconds_per_step)


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients that hang up


class LocalHub:
    """Two hosts: the hub, and the one of its large files. Everything may be changed while it runs."""

    def __init__(self):
        self.lock = threading.Lock()
        self.repos, self.renamed, self.manifests = {}, {}, {}
        self.blobs = {}  # of the second host
        self.files = {}  # of plain URLs
        self.faults, self.requests, self.proxied = [], [], []
        self.redirect_headers = {}
        self.has_ranges, self.seconds_per_step, self.bytes_sent = True, 0, 0
        self.servers = []
        for is_cdn in (False, True):
            server = QuietServer(("127.0.0.1", 0), Handler)
            server.hub, server.is_cdn = self, is_cdn
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers.append(server)
        self.host, self.cdn_host = (f"127.0.0.1:{server.server_address[1]}" for server in self.servers)
        self.url = f"http://{self.host}"

    def cdn_url(self, blob):
        return f"http://{self.cdn_host}/{blob}?X-Amz-Signature=secret"

    def fail(self, path, status=0, count=1, headers=None, cut=None, method=""):
        """The next `count` requests whose path matches fail: with a status, or a connection cut after so many bytes."""
        self.faults.append({"path": path, "status": status, "count": count, "headers": headers or {}, "cut": cut, "method": method})

    def add_ollama_model(self, name, tag, model, **layers):
        """layers: template=b"...", params=b"..." """
        described = []
        for kind, data in {"model": model, **layers}.items():
            digest = hashlib.sha256(data).hexdigest()
            self.blobs[digest] = data
            described.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)})
        config = b'{"model_format": "gguf"}'
        digest = hashlib.sha256(config).hexdigest()
        self.blobs[digest] = config
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": f"sha256:{digest}", "size": len(config)},
            "layers": described,
        }
        self.manifests[(name, tag)] = json.dumps(manifest).encode()

    def count(self, path, method="", host=""):
        return sum(bool(re.search(path, p)) and method in ("", m) and host in ("", h) for h, m, p, _ in self.requests)

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()


@contextlib.contextmanager
def local_hub():
    hub = LocalHub()
    try:
        yield hub
    finally:
        hub.close()
