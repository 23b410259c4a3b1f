"""Requests that nobody would send: whatever the OpenAPI document allows or forbids must not make the service fail.

A service of its own (`mempiler serve`, offline engine, turn RAG, SQLite) gets generated requests of every operation,
`--cases` in all: half of what its document allows, half of what it forbids. The service writes memories meanwhile, and
some users are there, so that requests meet what is stored.

    failures    answers of status 500 and above, but for those of an overload; answers that the document does not have,
                or that do not fit it; requests that were served without a token
    unforeseen  lines of the service's log that tell of an error nobody thought of

The exit code is 1 if there is one of either.

Usage:
    $ python perf/fuzz_service.py --cases 3000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import hypothesis
from load import TENANTS, service

with warnings.catch_warnings():
    # Libraries of its own that it imports warn of one another.
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis import checks
    from schemathesis.core.failures import Failure, FailureGroup

CHECKS: list[Any] = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.ignored_auth,
]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """A body of JSON lines: a text as it is, anything else as one line."""
    return value.encode(errors="replace") if isinstance(value, str) else json.dumps(value).encode()


class Fuzz:
    """Sends generated requests, and counts what came back.

    Args:
        address: The service.
        token: Of the tenant that asks.
        seed: Of the requests.
    """

    def __init__(self, address: str, token: str, seed: int) -> None:
        self._address, self._headers, self._seed = address, {"Authorization": f"Bearer {token}"}, seed
        self.statuses: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self, cases: int) -> None:
        """Sends so many requests at least."""
        document = schemathesis.openapi.from_url(f"{self._address}/openapi.json")
        found = [operation.ok() for operation in document.get_all_operations()]
        # A fifth more: some operations have but one request that is right, and none that is wrong.
        each = -(-6 * cases // (5 * len(found) * len(MODES)))
        for mode in MODES:
            for operation in found:
                self._fuzz(operation, mode, each)

    def _fuzz(self, operation: Any, mode: Any, count: int) -> None:
        before = self.statuses.total()

        @hypothesis.seed(self._seed)
        @hypothesis.settings(
            max_examples=count,
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            self._send(case)

        # Where there is nothing to get wrong.
        with contextlib.suppress(hypothesis.errors.Unsatisfiable):
            send()
        print(f"{mode.value:8s} {operation.label:50s} {self.statuses.total() - before}", file=sys.stderr)

    def _send(self, case: Any) -> None:
        if case.operation.label == "GET /v1/events":
            case.query = {**case.query, "seconds": 0}
        response = case.call(headers=self._headers)
        self.statuses[str(response.status_code)] += 1
        try:
            case.validate_response(response, checks=CHECKS, headers=self._headers)
        except (FailureGroup, Failure) as failure:
            self.failures.append(f"{case.operation.label}: {response.status_code}: {failure}"[:2000])


def fill(address: str, tokens: dict[str, str]) -> None:
    """Stores something for requests to meet."""
    for tenant, token in tokens.items():
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}) as client:
            for user in ("ada", "0", "a"):
                said = [{"role": "user", "name": "Ada", "content": f"I moved to Lisbon, said {tenant}."}]
                client.post(f"/v1/users/{user}/sessions", json={"id": "0", "messages": said}).raise_for_status()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tokens = {tenant: secrets.token_urlsafe(24) for tenant in TENANTS}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        with service(Path(name), tokens, str(Path(name) / "memories.sqlite"), []) as (address, _):
            fill(address, tokens)
            fuzz = Fuzz(address, tokens[TENANTS[0]], options.seed)
            fuzz.run(options.cases)
        unforeseen = [line for line in (Path(name) / "log").read_text().splitlines() if "unforeseen" in line]
    for failure in (*fuzz.failures, *unforeseen):
        print(failure, file=sys.stderr)
    about = {"cases": fuzz.statuses.total(), "statuses": dict(sorted(fuzz.statuses.items()))}
    about |= {"failures": len(fuzz.failures), "unforeseen": len(unforeseen), "seconds": round(time.monotonic() - begun)}
    print(json.dumps(about))
    return 1 if fuzz.failures or unforeseen or fuzz.statuses.total() < options.cases else 0


if __name__ == "__main__":
    sys.exit(main())
