"""Every file of deploy/ parses and names only flags, paths and metrics that exist."""

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.request

import pytest
from conftest import MODEL, QUIRE, ROOT, needs_model, quire, skip_without_binary

DEPLOY = ROOT / "deploy"
yaml = pytest.importorskip("yaml", reason="no PyYAML")


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@pytest.fixture(scope="module")
def metrics(server):
    """The names in /metrics after an answer, with their labels."""
    body = json.dumps({"prompt": "Once", "max_tokens": 3}).encode()
    urllib.request.urlopen(urllib.request.Request(server.url + "/completions", body)).read()
    urllib.request.urlopen(server.base + "/health").read()
    text = urllib.request.urlopen(server.base + "/metrics").read().decode()
    return {match.group(1): set(re.findall(r'(\w+)="', match.group(2) or "")) for match in re.finditer(r"^([a-zA-Z_:]\w*[\w:]*)(?:\{([^}]*)\})? ", text, re.M)}


def dashboard():
    return json.loads((DEPLOY / "grafana/dashboards/quire.json").read_text())


def used_metrics(expression):
    return re.findall(r"\b(quire:\w+)", expression.replace("${prefix}", "quire:"))


def test_the_dashboards_metrics_and_labels_exist(metrics):
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]
    expressions += [v["query"]["query"] for v in dashboard()["templating"]["list"] if v["type"] == "query"]
    used = [name for expression in expressions for name in used_metrics(expression)]
    assert len(set(used)) >= 10
    assert not set(used) - set(metrics)
    for expression in expressions:
        for name, selector in re.findall(r"\$\{prefix\}(\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)=~?", selector)) - {"instance"}  # Prometheus adds the instance
            assert labels <= metrics["quire:" + name], expression
        for label in re.findall(r"by \((\w+)\)", expression):
            assert any(label in metrics[name] for name in used_metrics(expression)), expression


def test_the_dashboards_panels_do_not_overlap():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


def test_alerts_use_metrics_that_exist(metrics):
    rules = [rule for group in documents("prometheus/alerts.yml")[0]["groups"] for rule in group["rules"]]
    assert rules and all(rule["alert"] and rule["annotations"]["summary"] for rule in rules)
    assert not {name for rule in rules for name in used_metrics(rule["expr"])} - set(metrics)


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool")
def test_promtool_agrees(server):
    subprocess.run(["promtool", "check", "config", DEPLOY / "prometheus/prometheus.yml"], check=True)
    text = urllib.request.urlopen(server.base + "/metrics").read()
    assert subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True).returncode in (0, 3)  # 3: style only


def test_compose_mounts_files_that_exist():
    services = documents("compose.yml")[0]["services"]
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), volume
    build = services["quire"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()
    target = documents("prometheus/prometheus.yml")[0]["scrape_configs"][0]["static_configs"][0]["targets"][0]
    assert target.split(":")[0] in services
    assert documents("grafana/provisioning/datasources/prometheus.yml")[0]["datasources"][0]["url"] == "http://prometheus:9090"
    path = documents("grafana/provisioning/dashboards/quire.yml")[0]["providers"][0]["options"]["path"]
    assert any(volume.split(":")[1] == path for volume in services["grafana"]["volumes"])


def test_kubernetes_probes_are_paths_of_the_server(server):
    deployment, service = [d for d in documents("kubernetes.yml") if d["kind"] in ("Deployment", "Service")]
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert urllib.request.urlopen(server.base + container[probe]["httpGet"]["path"]).status == 200
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] in [port["name"] for port in container["ports"]]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]


def test_kubernetes_volumes_are_mounted_and_defined():
    by_kind = {}
    for document in documents("kubernetes.yml"):
        by_kind.setdefault(document["kind"], []).append(document)
    pod = by_kind["Deployment"][0]["spec"]["template"]["spec"]
    volumes, container = {v["name"]: v for v in pod["volumes"]}, pod["containers"][0]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert mounts.keys() == volumes.keys()
    assert volumes["keys"]["secret"]["secretName"] in [d["metadata"]["name"] for d in by_kind["Secret"]]
    assert volumes["cache"]["persistentVolumeClaim"]["claimName"] in [d["metadata"]["name"] for d in by_kind["PersistentVolumeClaim"]]
    known, arguments = quire("serve", "--help").stdout, container["args"]
    for flag, value in zip(arguments[::2], arguments[1::2]):
        assert flag in known and any(value.startswith(mount + "/") for mount in mounts.values()), flag
    file = arguments[arguments.index("--api-key-file") + 1]
    assert file.removeprefix(mounts["keys"] + "/") in by_kind["Secret"][0]["stringData"]


def test_the_dockerfile_finds_the_packages_of_the_binarys_libraries():
    if not shutil.which("dpkg-query"):
        pytest.skip("no dpkg-query")
    line = next(line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("RUN ldd"))
    pipeline = line.removeprefix("RUN ").replace("build/quire", str(QUIRE)).removesuffix(" > build/packages")
    done = subprocess.run(["bash", "-o", "pipefail", "-c", pipeline], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    packages = done.stdout.split()
    assert {"libc6", "libstdc++6", "libssl3"} <= {re.sub("t64$", "", package) for package in packages}
    subprocess.run(["dpkg-query", "--status", *packages], check=True, capture_output=True)


def test_the_dockerfiles_paths_and_flags_exist():
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line]
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), line
                assert f"!{source}" in (DEPLOY / "Dockerfile.dockerignore").read_text()
    entry = json.loads(next(line for line in lines if line.startswith("ENTRYPOINT")).removeprefix("ENTRYPOINT"))
    known = quire("serve", "--help").stdout
    assert entry[:2] == ["quire", "serve"] and all(word in known for word in entry if word.startswith("--"))
    # A Dockerfile cannot read the list of packages in ./dev, so it repeats it.
    packages = re.search(r"build_packages\(\) \{\n  echo (.*?)\n  #", (ROOT / "dev").read_text(), re.S).group(1).replace("\\\n", " ").split()
    # An image is one process: without MPI.
    testing = re.compile("gtest|gmock|rapidcheck|benchmark|ccache|python3-|openmpi")
    assert not {p for p in packages if not testing.search(p)} - set(" ".join(lines).split())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_the_systemd_unit_is_valid_and_tight(tmp_path):
    unit = tmp_path / "quire.service"
    unit.write_text((DEPLOY / "quire.service").read_text().replace("/usr/local/bin/quire", "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert checked.returncode == 0 and "quire.service" not in checked.stderr, checked.stderr
    exposure = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit], capture_output=True, text=True)
    if "Unknown option" not in exposure.stderr and "unrecognized" not in exposure.stderr:
        assert exposure.returncode == 0, exposure.stdout[-300:]


def test_the_sample_of_settings_has_flags_that_exist():
    settings = dict(line.split("=", 1) for line in (DEPLOY / "quire.env").read_text().splitlines() if line and not line.startswith("#"))
    flags = re.findall(r"(?<!\S)--?[a-z-]+", settings["QUIRE_FLAGS"])
    known = quire("serve", "--help").stdout
    assert flags and all(flag in known for flag in flags)
    unit = (DEPLOY / "quire.service").read_text()
    assert "$QUIRE_FLAGS" in unit and "EnvironmentFile=/etc/quire/quire.env" in unit
    assert "QUIRE_API_KEY" in known and "QUIRE_API_KEY" in (DEPLOY / "quire.env").read_text()


@needs_model
def test_systemd_hears_when_the_model_is_loaded(tmp_path):
    skip_without_binary()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(60)
        command = [QUIRE, "serve", "-m", MODEL, "--port", "0", "--max-model-len", "512"]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")})
        try:
            assert notified.recv(100) == b"READY=1"
            base = re.search(r"http://[^/]+", running.stdout.readline()).group()
            assert urllib.request.urlopen(base + "/ready").status == 200
        finally:
            running.terminate()
            running.communicate(timeout=60)
