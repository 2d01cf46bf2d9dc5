"""The benchmark of published OpenAPI documents: it counts, it calls, and its oracle notices a wrong request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import published_documents
from published_documents import SEEN, Oracle

pytestmark = [pytest.mark.costly, pytest.mark.real_time]

PARAMETERS = [
    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
    {"name": "tags", "in": "query", "explode": False, "schema": {"type": "array", "items": {"type": "string"}}},
]
BODY = {"content": {"application/json": {"schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}}
OPERATION = {"operationId": "put", "parameters": PARAMETERS, "requestBody": BODY}
DOCUMENT = {"openapi": "3.0.0", "paths": {"/a/{id}?v=1": {"put": OPERATION}, "/b": {"get": {"operationId": "get"}}}}


def test_it_calls_and_counts(tmp_path: Path) -> None:
    """Documents of other versions are passed over."""
    (tmp_path / "one.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    (tmp_path / "old.json").write_text('{"swagger": "2.0"}', encoding="utf-8")
    script = published_documents.__file__
    command = [sys.executable, script, str(tmp_path), "--calls", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sent right: 8 of 8" in done.stdout
    assert "imported: 2 of 2 operations, 100.000%" in done.stdout


def test_the_oracle_notices_what_is_wrong() -> None:
    """Each part of the request by itself."""
    oracle = Oracle(DOCUMENT, "/a/{id}?v=1", {}, OPERATION)
    given = {"id": "x y", "tags": ["b", "c"], "body": {"a": 1}}
    SEEN.method, SEEN.target, SEEN.body = "PUT", "/base/a/x%20y?v=1&tags=b,c", b'{"a": 1}'
    SEEN.headers = {"content-type": "application/json"}
    assert list(oracle.faults("put", given)) == []
    for target in ("/base/a/x/y?v=1&tags=b,c", "/base/a/x%20y?tags=b,c", "/base/a/x%20y?v=1&tags=b&tags=c"):
        SEEN.target = target
        assert list(oracle.faults("put", given)) != []
    SEEN.target, SEEN.body = "/base/a/x%20y?v=1&tags=b,c", b'{"a": "1"}'
    assert list(oracle.faults("put", given)) == ["another JSON body"]
