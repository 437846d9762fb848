"""/openapi.json against the code: every answer to generated requests is one that the document allows."""

import json
import subprocess
import sys

import pytest

from conftest import Server, skip_without_binary_and_model
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
def small():
    """A short context, so that answers are."""
    skip_without_binary_and_model()
    running = Server("--max-model-len", "64", "--log-level", "warning")
    yield running
    code, log = running.stop()
    assert code == 0, log


def test_the_document_is_openapi(small):
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(json.loads(get(small, "/openapi.json")[1]))


def test_generated_requests_are_answered_as_documented(small, tmp_path):
    pytest.importorskip("schemathesis")
    api = json.loads(get(small, "/openapi.json")[1])
    for operations in api["paths"].values():
        for operation in operations.values():
            for body in operation.get("requestBody", {}).get("content", {}).values():
                body["schema"]["properties"].pop("timeout", None)  # a millisecond is allowed, and ends with a 504
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(api))
    command = [sys.executable, "-m", "schemathesis.cli", "run", document, "--url", small.base, "--seed", "1", "--max-examples", "8",
               "--phases", "fuzzing", "--checks", ",".join(CHECKS), "--no-shrink", "--request-timeout", "30"]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert checked.returncode == 0, checked.stdout[-8000:] + checked.stderr[-2000:]
