"""/openapi.json against the code: every answer to generated requests is one that the document allows."""

import http.client
import json
import subprocess
import sys

import pytest

from conftest import served
from test_server import get

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",  # what the document forbids is refused
    "unsupported_method",
    "allow_header_conformance",
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A short context, so that answers are."""
    with served("--max-model-len", "64", "--files-dir", str(tmp_path_factory.mktemp("files"))) as running:
        yield running


def schemathesis(server, document, checks, *options):
    """Requests made up after the document, their answers checked."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", document, "--url", server.base, "--seed", "1", "--phases", "fuzzing",
               "--checks", ",".join(checks), "--no-shrink", "--request-timeout", "30", *options]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=document.parent, timeout=300)
    assert checked.returncode == 0, checked.stdout[-8000:] + checked.stderr[-2000:]


def test_the_document_is_openapi(small):
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(json.loads(get(small, "/openapi.json")[1]))


def test_generated_requests_are_answered_as_documented(small, tmp_path):
    pytest.importorskip("schemathesis")
    api = json.loads(get(small, "/openapi.json")[1])
    api["paths"].pop("/dashboard/events")  # never ends
    for path in ("/api/pull", "/api/delete"):
        api["paths"].pop(path)  # they would change what is on this machine
    for operations in api["paths"].values():
        for operation in operations.values():
            for body in operation.get("requestBody", {}).get("content", {}).values():
                body["schema"]["properties"].pop("timeout", None)  # a millisecond is allowed, and ends with a 504
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(api))
    schemathesis(small, document, CHECKS, "--max-examples", "8")


def test_what_the_document_keeps_for_keys_needs_one(tmp_path):
    pytest.importorskip("schemathesis")
    validator = pytest.importorskip("openapi_spec_validator")
    with served("--max-model-len", "64", "--api-key", "sk-e2e") as keyed:
        connection = http.client.HTTPConnection("127.0.0.1", keyed.port, timeout=60)
        connection.request("GET", "/openapi.json", headers={"x-api-key": "sk-e2e"})
        api = json.loads(connection.getresponse().read())
        validator.validate(api)
        api["paths"].pop("/dashboard/events")  # never ends
        assert {scheme["type"] for scheme in api["components"]["securitySchemes"].values()} == {"http", "apiKey"}
        document = tmp_path / "openapi.json"
        document.write_text(json.dumps(api))
        checks = ["ignored_auth", "status_code_conformance", "response_schema_conformance", "response_headers_conformance"]
        schemathesis(keyed, document, checks, "--max-examples", "3", "--header", "Authorization: Bearer sk-e2e")
