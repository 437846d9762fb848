"""The example of Ray Serve (deploy/ray): a local Ray, two replicas, equal answers, and no process left behind."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import urllib.request

import pytest
from conftest import MODEL, QUIRE, ROOT, eventually, skip_without_binary_and_model
from test_kv_events import free_port
from test_routers import PROMPTS, Replica, complete

ray = pytest.importorskip("ray", reason="no Ray: pip install 'ray[serve]' aiohttp")
pytest.importorskip("aiohttp", reason="no aiohttp")

SERVE = """
import sys, ray
from ray import serve
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
import quire_app
serve.run(quire_app.app)
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""


def servers(flag):
    """How many programs run with this flag."""
    found = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        found += flag.encode() in words and words[1] == b"serve"
    return found


@pytest.fixture
def served():
    skip_without_binary_and_model()
    port, flag = free_port(), f"--max-model-len={1000 + os.getpid() % 1000}"
    environment = {**os.environ, "QUIRE": str(QUIRE), "QUIRE_MODEL": str(MODEL), "QUIRE_REPLICAS": "2", "QUIRE_CPUS": "1",
                   "QUIRE_FLAGS": f"--served-model-name smollm2 {flag}", "RAY_USAGE_STATS_ENABLED": "0",
                   "PYTHONPATH": str(ROOT / "deploy/ray")}  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert any(line == "ready\n" for line in process.stdout)
    assert servers(flag) == 2
    yield f"http://127.0.0.1:{port}"
    process.communicate("", timeout=120)
    assert eventually(lambda: servers(flag) == 0, 60)


def test_ray_serves_the_answers_of_one_server(served):
    alone = Replica()
    expected = [complete(alone.url, prompt)[0] for prompt in PROMPTS]
    assert alone.server.stop()[0] == 0
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for stream in (False, True):
            assert list(pool.map(lambda prompt: complete(served, prompt, stream=stream)[0], PROMPTS)) == expected
    with pytest.raises(urllib.error.HTTPError) as wrong:
        urllib.request.urlopen(served + "/v1/completions", b"{")
    assert wrong.value.code == 400 and b'"error"' in wrong.value.read()
