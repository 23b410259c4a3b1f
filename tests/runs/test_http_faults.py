"""Endpoints that fail over real HTTP: repeated, counted, or stopped with the way to resume; never a silent zero."""

import re
from typing import Any

import pytest


def always(fault: str) -> Any:
    return lambda n, text: fault


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
