"""Keys, certificates, logs, Unix sockets, and a server that is still loading its model."""

import http.client
import json
import shutil
import signal
import socket
import ssl
import subprocess
import time

import httpx
import openai
import pytest

from conftest import MODEL, QUIRE, eventually, quire, skip_without_binary_and_model


def status(port, path, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


def completion(url, key, **client):
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60, **client).completions.create(
        model="smollm2", prompt="The sea", max_tokens=4, temperature=0
    )


def test_keys_come_from_a_file_that_sighup_reloads(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# people\nteam-a: sk-a\n")
    running = start_server("--api-key-file", str(keys), "--api-key", "sk-fixed", "--log-format", "json")
    assert completion(running.url, "sk-a").usage.completion_tokens == 4
    assert completion(running.url, "sk-fixed").usage.completion_tokens == 4
    with pytest.raises(openai.AuthenticationError):
        completion(running.url, "sk-b")
    assert status(running.port, "/health") == 200 and status(running.port, "/metrics") == 200
    assert status(running.port, "/v1/models") == 401
    keys.write_text("sk-b\n")
    running.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: status(running.port, "/v1/models", {"Authorization": "Bearer sk-b"}) == 200)
    assert status(running.port, "/v1/models", {"Authorization": "Bearer sk-a"}) == 401
    code, log = running.stop()
    assert code == 0
    records = [json.loads(line) for line in log.splitlines()]
    done = [record for record in records if record.get("finish") == "length"]
    assert [record["tenant"][:6] for record in done] == ["team-a", done[1]["tenant"][:6]] and done[1]["tenant"].startswith("key-")
    assert done[0]["completion_tokens"] == 4 and done[0]["status"] == 200 and done[0]["ttft_ms"] > 0
    assert "The sea" not in log and "sk-" not in log


def test_clients_use_https(start_server, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    running = start_server("--ssl-certfile", str(cert), "--ssl-keyfile", str(key))
    assert running.url.startswith("https://")
    with httpx.Client(verify=ssl.create_default_context(cafile=str(cert))) as trusting:
        assert completion(running.url, "none", http_client=trusting).usage.completion_tokens == 4
        client = openai.OpenAI(base_url=running.url, api_key="none", http_client=trusting)
        chunks = list(client.completions.create(model="smollm2", prompt="The sea", max_tokens=20, stream=True))
        assert chunks[-1].choices[0].finish_reason
    assert status(running.port, "/health") == 400  # HTTP on the HTTPS port
    assert running.stop()[0] == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_it_answers_while_it_loads():
    skip_without_binary_and_model()
    port = free_port()
    command = [QUIRE, "serve", "-m", MODEL, "--port", str(port), "--max-model-len", "64", "--log-level", "off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        seen = set()
        end = time.monotonic() + 60
        while 200 not in seen and time.monotonic() < end:
            health, ready = status(port, "/health"), status(port, "/ready")
            assert health in (None, 200) and ready in (None, 503, 200)
            seen.add(ready)
        assert {503, 200} <= seen
        assert process.stdout.readline().startswith("quire: ")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_signal_ends_a_load():
    skip_without_binary_and_model()
    port = free_port()
    command = [QUIRE, "serve", "-m", MODEL, "--port", str(port), "--log-level", "off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert eventually(lambda: status(port, "/health") == 200)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


def test_a_model_that_cannot_be_loaded_gives_one_clear_line(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    ended = quire("serve", "-m", broken, "--port", "0", "--log-level", "warning")
    assert ended.returncode == 1 and ended.stdout == ""
    assert str(broken) in ended.stderr and len(ended.stderr.strip().splitlines()) == 1


def test_a_unix_socket_instead_of_a_port(tmp_path):
    skip_without_binary_and_model()
    path = tmp_path / "quire.sock"
    command = [QUIRE, "serve", "-m", MODEL, "--uds", path, "--max-model-len", "64", "--log-level", "warning"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip().endswith(f" at unix:{path}")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
            assert client.get("/").headers["content-type"].startswith("text/html")
            answer = client.post("/v1/completions", json={"prompt": "The sea", "max_tokens": 2}, timeout=60)
            assert answer.json()["usage"]["completion_tokens"] == 2
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not path.exists()


def test_credentials_for_every_page_are_refused_at_the_start():
    skip_without_binary_and_model()
    ended = quire("serve", "-m", MODEL, "--port", "0", "--allowed-origins", "*", "--allow-credentials", timeout=20)
    assert ended.returncode in (1, 2) and ended.stdout == ""
    assert "--allowed-origins '*' with --allow-credentials" in ended.stderr
