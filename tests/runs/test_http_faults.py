"""Endpoints that fail over real HTTP: repeated, counted, or stopped with the way to resume; never a silent zero."""

import re
from typing import Any

import pytest
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.results import Evaluation
from mempiler.runs.setup import Setup


def evaluation(server: Any, **options: Any) -> Evaluation:
    # Under "auto" the first request would be one more, about the endpoint.
    options = {"adapter": "chat", "retries": 0, "threads": 1, "train": 8, "dev": 4, "test": 4, **options}
    return run_evaluate("turn-rag", Setup("locomo", lm=server.model, api_base=server.url, **options), "test")


def at(faults: dict[int, str]) -> Any:
    return lambda n, text: faults.get(n)


def always(fault: str) -> Any:
    return lambda n, text: fault


@pytest.fixture
def healthy(stub) -> Evaluation:
    return evaluation(stub())


@pytest.mark.parametrize(
    ("faults", "kind", "words"),
    [
        ({2: "garbled", 3: "garbled"}, "parse", "could not be parsed|failed to parse|missing"),
        ({2: "stall"}, "endpoint", "timed? ?out|timeout"),
        ({2: "500"}, "endpoint", "the server has a fault"),
        ({2: "429"}, "endpoint", "slow down"),
        ({2: "no-json"}, "endpoint", ""),
    ],
    ids=["garbled", "stall", "500", "429", "no-json"],
)
def test_a_lasting_fault_is_a_typed_failure_of_its_question(stub, healthy, faults, kind, words):
    found = evaluation(stub(at(faults)), timeout=0.4)
    (failed,) = [row for row in found.rows if row.failure]
    assert failed.failure
    assert (failed.id, failed.failure.where) == (found.rows[1].id, found.rows[1].id)
    assert (failed.failure.kind, failed.score) == (kind, 0.0)
    assert re.search(words, failed.failure.message)
    assert "\n" not in failed.failure.message
    others = [row.id for row in found.rows if not row.failure]
    assert [row.answer for row in found.rows if row.id in others] == [r.answer for r in healthy.rows if r.id in others]


@pytest.mark.parametrize(
    ("script", "code", "words", "requests"),
    [
        (always("500"), 3, "5 times in a row, stopped: .*the server has a fault", 5),
        (always("429"), 3, "5 times in a row, stopped: .*slow down", 5),
        (always("no-json"), 3, "5 times in a row", 5),
        (always("dead"), 3, "5 times in a row", 1),
        (always("401"), 2, "refuses the key: .*no such key", 1),
        (lambda n, text: "500" if n % 3 else None, 3, "failed 14 of 20 calls", 20),
    ],
    ids=["500", "429", "no-json", "dead", "401", "share"],
)
def test_an_endpoint_that_stays_away_stops_the_run_with_one_line(stub, mempiler_cli, script, code, words, requests):
    server = stub(script)
    ran = mempiler_cli(server, "evaluate", "turn-rag", test=24)
    assert (ran.code, ran.out, len(server.texts)) == (code, "", requests)
    assert re.search(f"^mempiler: the model's endpoint .*{words}.*; --resume \\S+ goes on", ran.line)


@pytest.mark.parametrize("fault", ["dead", "stall"])
def test_no_answer_to_a_few_questions_is_no_score(stub, mempiler_cli, fault):
    server = stub(always(fault))
    ran = mempiler_cli(server, "evaluate", "turn-rag", "--timeout", "0.2", test=4)
    assert (ran.code, ran.out) == (3, "")
    assert "answered none of 4 questions" in ran.line
    assert ran.resume
