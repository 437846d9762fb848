"""The manifests of replicas: what they render to, and that they name only flags, paths and ports that exist."""

import urllib.request

import pytest
from conftest import ROOT, quire

yaml = pytest.importorskip("yaml", reason="no PyYAML")
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/quire"
EVERYTHING = {"keysSecret": "keys", "kvEvents": {"enabled": True}, "autoscaling": {"enabled": True}, "inferencePool": {"enabled": True}, "flags": ["--max-num-seqs", "8"]}


@pytest.fixture(scope="module")
def helm():
    return pytest.importorskip("helm_python.chart", reason="no Helm: pip install helm-python-sdk")


def rendered(helm, values):
    files = helm.Chart.load(CHART).render(values, name="story").values()
    return {document["kind"]: document for text in files for document in yaml.safe_load_all(text) if document}


def check_flags(arguments):
    known = quire("serve", "--help").stdout
    for flag in (argument for argument in arguments if argument.startswith("-")):
        assert flag in known, flag


def test_helm_has_nothing_to_complain_about(helm):
    assert not [m for m in helm.lint(CHART, strict=True)["messages"] if "icon" not in str(m).lower()]


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_the_charts_objects_fit_together(helm, values):
    objects = rendered(helm, values)
    spec = objects["Deployment"]["spec"]
    pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
    container = pod["containers"][0]
    for selector in (spec["selector"]["matchLabels"], objects["Service"]["spec"]["selector"], objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items() and selector
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] in [port["name"] for port in container["ports"]]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    arguments = container["args"]
    check_flags(arguments)
    time = sum(float(arguments[arguments.index(flag) + 1]) for flag in ("--drain", "--grace"))
    assert pod["terminationGracePeriodSeconds"] > time + 5, "the server's last errors take up to 5 s"
    assert float(arguments[arguments.index("--drain") + 1]) > container["readinessProbe"]["periodSeconds"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["resources"]["limits"]["memory"] == "8Gi"


def test_the_charts_values_switch_objects_on(helm):
    plain, all_on = rendered(helm, {}), rendered(helm, EVERYTHING)
    assert plain.keys() == {"Deployment", "Service", "PodDisruptionBudget"}
    assert plain["Deployment"]["spec"]["replicas"] == 3
    assert all_on.keys() == plain.keys() | {"HorizontalPodAutoscaler", "InferencePool"}
    deployment, scaler, pool = (all_on[kind]["spec"] for kind in ("Deployment", "HorizontalPodAutoscaler", "InferencePool"))
    assert "replicas" not in deployment, "the autoscaler decides"
    assert scaler["scaleTargetRef"]["name"] == all_on["Deployment"]["metadata"]["name"] == "story"
    arguments = deployment["template"]["spec"]["containers"][0]["args"]
    assert arguments[-2:] == ["--max-num-seqs", "8"]
    assert arguments[arguments.index("--kv-events") + 1] == "tcp://*:5557"
    assert pool["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert pool["targetPorts"][0]["number"] in [port["containerPort"] for port in deployment["template"]["spec"]["containers"][0]["ports"]]


def test_the_autoscalers_metric_exists(helm, server):
    name = rendered(helm, EVERYTHING)["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    text = urllib.request.urlopen(server.base + "/metrics").read().decode()
    assert f"\n{name.replace('quire_', 'quire:', 1)}{{" in text  # adapters for Kubernetes replace the colon


def test_kserves_runtime_names_flags_and_paths_that_exist(server):
    runtime = yaml.safe_load((DEPLOY / "kserve.yml").read_text())
    container = runtime["spec"]["containers"][0]
    check_flags(container["args"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert urllib.request.urlopen(server.base + container[probe]["httpGet"]["path"]).status == 200
    assert urllib.request.urlopen(server.base + runtime["spec"]["annotations"]["prometheus.kserve.io/path"]).status == 200


def test_composes_router_finds_the_replicas():
    services = yaml.safe_load((DEPLOY / "replicas.yml").read_text())["services"]
    check_flags(services["quire"]["command"][::2])
    config = yaml.safe_load((DEPLOY / "envoy.yaml").read_text())["static_resources"]
    address = config["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert address == {"address": "quire", "port_value": 8080} and "quire" in services
    assert services["envoy"]["ports"] == ["127.0.0.1:8080:8080"]
    assert config["listeners"][0]["address"]["socket_address"]["port_value"] == 8080
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith("./") or (DEPLOY / source).exists()
