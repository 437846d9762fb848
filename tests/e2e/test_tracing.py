"""--trace-out with quire report, and spans that go to a collector."""

import http.server
import json
import signal
import threading
import urllib.request

import pytest

from conftest import Server, eventually, quire, quire_json


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("q4_1")


def complete(server, headers=None, **fields):
    body = json.dumps({"prompt": "A prompt", "max_tokens": 8, "ignore_eos": True, **fields}).encode()
    request = urllib.request.Request(server.url + "/completions", body, {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def serve(model):
    servers = []

    def start(*flags):
        servers.append(Server(*flags, model=model, name="tiny"))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def test_a_served_run_is_reported(serve, tmp_path):
    trace = tmp_path / "trace.json"
    server = serve("--trace-out", str(trace))
    for i in range(5):
        complete(server, {"X-Request-Id": f'mine-{i}"\\'})
    code, log = server.stop()
    assert code == 0, log

    events = json.loads(trace.read_text())  # as viewers read it
    assert {event["ph"] for event in events} == {"M", "X", "i"}
    assert any(event["args"].get("name") == 'request 3 (mine-2"\\)' for event in events if event["ph"] == "M")

    report = quire_json("report", trace)
    assert report["end"] == "closed" and report["warnings"] == []
    assert report["answers"]["finished"] == 5 and report["answers"]["tokens"] == 40
    assert report["answers"]["ttft"]["count"] == report["answers"]["queue"]["count"] == 5
    assert report["kinds"]["prefill"]["count"] + report["kinds"]["decode"]["count"] == report["steps"] == 40
    assert report["answers"]["cached_tokens"] >= 0
    time = report["time_ms"]
    parts = time["steps"] + time["idle"] + time["page_store"] + time["between_steps"]
    assert parts == pytest.approx(time["all"], rel=1e-6)
    assert time["idle"] > 0  # between two requests
    phases, operations = (sum(part["total_ms"] for part in report[kind].values()) for kind in ("phases", "operations"))
    assert 0 < operations <= report["phases"]["forward"]["total_ms"] * 1.001
    assert phases == pytest.approx(time["steps"], rel=0.01)
    assert len(report["slowest"]) == 5

    text = quire("report", trace, "--slowest", "2")
    assert text.returncode == 0 and text.stderr == ""
    for part in "steps by kind", "attention", "time to first token", "slowest steps", '5 length':
        assert part in text.stdout, text.stdout


def test_a_killed_server_leaves_a_trace_that_is_reported(serve, tmp_path):
    trace = tmp_path / "trace.json"
    server = serve("--trace-out", str(trace))
    complete(server)
    assert eventually(lambda: b'"finished"' in trace.read_bytes())
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    done = quire("report", trace, "--json")
    assert done.returncode == 0 and "lacks its end" in done.stderr
    report = json.loads(done.stdout)
    assert report["end"] == "missing" and report["answers"]["finished"] == 1

    trace.write_bytes(trace.read_bytes()[:-30])
    done = quire("report", trace)
    assert done.returncode == 0 and "its last event is cut off" in done.stderr


def test_run_is_traced_without_operations(model, tmp_path):
    trace = tmp_path / "trace.json"
    done = quire("run", "-m", model, "-p", "A prompt", "-n", "6", "--raw", "--trace-out", trace, "--trace-detail", "steps")
    assert done.returncode == 0, done.stderr
    report = quire_json("report", trace)
    assert report["operations"] == {} and report["phases"]["forward"]["count"] == report["steps"] > 0


def test_a_trace_ends_at_its_limit(model, tmp_path):
    trace = tmp_path / "trace.json"
    done = quire("run", "-m", model, "-p", "A prompt", "-n", "300", "--raw", "--trace-out", trace, "--trace-limit", "100kB")
    assert done.returncode == 0 and "--trace-limit" in done.stderr
    assert 90_000 < trace.stat().st_size <= 102_400
    done = quire("report", trace)
    assert done.returncode == 0 and "reached its limit" in done.stderr


def test_files_that_are_no_traces_are_refused(tmp_path):
    for name, text in {
        "empty": "",
        "text": "hello\n",
        "object": '{"traceEvents": []}\n',
        "other": '[\n{"name": "x", "ph": "B", "pid": 1, "tid": 1, "ts": 0}\n]\n',
        "cut": '[\n{"name":"quire_tr',
    }.items():
        (file := tmp_path / name).write_text(text)
        done = quire("report", file)
        assert done.returncode == 1 and name in done.stderr and done.stdout == "", name
    assert quire("report", tmp_path).returncode == 1
    assert quire("report", tmp_path / "missing").returncode == 1
    assert quire("report").returncode == 2


def test_bad_flags_are_refused(model, tmp_path):
    for flags in ["--trace-limit", "1kB"], ["--trace-detail", "all"], ["--otlp-traces-endpoint", "localhost:4317"]:
        done = quire("serve", "-m", model, *flags)
        assert done.returncode == 2 and flags[0] in done.stderr, done.stderr
    done = quire("serve", "-m", model, "--otlp-traces-endpoint", "http://localhost", "--otlp-headers", "nothing")
    assert done.returncode == 2 and "NAME=VALUE" in done.stderr
    for file in tmp_path, tmp_path / "missing" / "trace.json", "/dev/full":
        done = quire("run", "-m", model, "-p", "x", "-n", "2", "--raw", "--trace-out", file)
        assert done.returncode == 1 and "trace" in done.stderr, done.stderr


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def collector():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.got = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_reach_a_collector(serve, collector):
    server = serve("--otlp-traces-endpoint", f"http://127.0.0.1:{collector.server_port}", "--otlp-service-name", "chat")
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    complete(server, {"traceparent": f"00-{trace}-{parent}-01", "X-Request-Id": "mine"})
    complete(server, {"traceparent": f"00-{trace}-{parent}-00"})
    assert eventually(lambda: collector.got)
    assert server.stop()[0] == 0
    ((path, body),) = collector.got
    assert path == "/v1/traces"
    (resource,) = body["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "chat"}} in resource["resource"]["attributes"]
    (span,) = resource["scopeSpans"][0]["spans"]
    assert span["traceId"] == trace and span["parentSpanId"] == parent and span["name"] == "llm_request"
    attributes = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
    assert attributes["gen_ai.request.id"] == "mine" and attributes["gen_ai.response.model"] == "tiny"
    assert attributes["gen_ai.usage.completion_tokens"] == "8"
    assert 0 <= attributes["gen_ai.latency.time_in_queue"] <= attributes["gen_ai.latency.time_to_first_token"] <= attributes["gen_ai.latency.e2e"]
    assert int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"]) > 1.7e18


def test_a_server_whose_collector_is_gone_stops_in_time(serve):
    server = serve("--otlp-traces-endpoint", "http://127.0.0.1:9")  # nobody listens
    complete(server)
    code, log = server.stop(timeout=20)
    assert code == 0 and "spans of requests are dropped" in log
