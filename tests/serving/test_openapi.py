"""The OpenAPI document: nothing it allows or forbids makes the service fail."""

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
    assert len(seen) == (20 if mode is schemathesis.GenerationMode.POSITIVE else 16)
    assert "unforeseen" not in caplog.text


def test_every_route_below_v1_names_its_token_and_its_errors(client: Any) -> None:
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == path.startswith("/v1")
            assert {"4XX", "5XX"} <= set(operation["responses"])
