"""The OpenAPI document: examples that hold, and nothing it allows or forbids that makes the service fail."""

import warnings
from typing import Any

import hypothesis
import pytest

with warnings.catch_warnings():
    # Libraries of its own that it imports warn of one another.
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis import checks


CHECKS: list[Any] = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.ignored_auth,
]
OPERATIONS = {
    "GET /health",
    "GET /ready",
    "GET /v1/models",
    "GET /v1/users",
    "GET /v1/users/{user}",
    "GET /v1/users/{user}/entries",
    "GET /v1/users/{user}/entries/{entry}",
    "GET /v1/users/{user}/entries/{entry}/history",
    "DELETE /v1/users/{user}/entries/{entry}",
    "PATCH /v1/users/{user}/entries/{entry}",
    "POST /v1/users/{user}/entries/{entry}/undo",
    "GET /v1/users/{user}/memory",
    "GET /v1/users/{user}/sessions",
    "DELETE /v1/users/{user}",
    "DELETE /v1/users/{user}/sessions/{session}",
    "POST /v1/chat/completions",
    "POST /v1/users/{user}/ask",
    "POST /v1/users/{user}/search",
    "POST /v1/users/{user}/sessions",
    "POST /v1/users/{user}/sessions/{session}/end",
}


def fuzz(operation: Any, call: Any, mode: Any, examples: int) -> None:
    """Sends generated requests of one operation."""

    @hypothesis.settings(
        max_examples=examples, suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate]
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        call(case)

    run()


NOTHING_TO_GET_WRONG = {"GET /health", "GET /ready", "GET /v1/models", "GET /v1/users"}


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
@pytest.mark.parametrize("examples", [10, pytest.param(80, marks=pytest.mark.slow)])
def test_no_request_makes_the_service_fail(
    connect: Any, mode: Any, examples: int, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    seen: dict[str, int] = {}

    def call(case: Any) -> None:
        response = case.call_and_validate(headers={"Authorization": client.headers["Authorization"]}, checks=CHECKS)
        seen[case.operation.label] = max(seen.get(case.operation.label, 0), response.status_code)

    for found in schemathesis.openapi.from_url(f"{client.address}/openapi.json").get_all_operations():
        if mode is schemathesis.GenerationMode.POSITIVE or found.ok().label not in NOTHING_TO_GET_WRONG:
            fuzz(found.ok(), call, mode, examples)
    expected = OPERATIONS if mode is schemathesis.GenerationMode.POSITIVE else OPERATIONS - NOTHING_TO_GET_WRONG
    assert set(seen) == expected
    assert "unforeseen" not in caplog.text


def test_examples_are_served(client: Any) -> None:
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody")
            if body is None:
                continue
            name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            (example,) = document["components"]["schemas"][name]["examples"]
            url = path.replace("{user}", "ada").replace("{session}", "s").replace("{entry}", "s:1")
            if path.endswith(("/ask", "/search", "/{entry}")):
                client.add("I moved to Lisbon.", id="s")
            response = client.request(method, url, json=example)
            assert response.status_code in (200, 201), (path, response.text)


def test_every_route_below_v1_names_its_token_and_its_errors(client: Any) -> None:
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == path.startswith("/v1")
            assert {"4XX", "5XX"} <= set(operation["responses"])
