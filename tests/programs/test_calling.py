"""Calling a program: every method by its name alone, a history as plain JSON, from asyncio."""

import asyncio
from typing import Any

import dspy
import pytest
from mempiler import History
from mempiler.engines.models import language_model
from mempiler.errors import DataError
from mempiler.programs.catalog import build
from mempiler.programs.names import METHODS

SAID = [
    [
        {"role": "user", "name": "Ada", "content": "I moved to Lisbon with my dog Rex."},
        {"role": "user", "name": "Bob", "content": "How nice! Do you like the hills?"},
    ],
    [{"role": "user", "name": "Ada", "content": "I bought light running shoes."}],
]
SMALLER = {"pramem": {"rounds": 1}}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_built_by_its_name_and_reads_plain_json(name: str) -> None:
    program = build(name, **SMALLER.get(name, {}))
    with dspy.context(lm=language_model("offline")):
        found = program(history=SAID, question="Where did Ada move?")
        assert found.memory == program.remember(History.parse(SAID)).memory
    assert isinstance(found.answer, str)


def test_what_is_no_history_is_refused_in_one_line() -> None:
    with dspy.context(lm=language_model("offline")), pytest.raises(DataError, match=r"expected .* a list of messages"):
        build("turn-rag")(history=7, question="Where?")


def test_a_program_answers_from_asyncio_as_it_does_otherwise() -> None:
    program = build("turn-rag")

    async def ask() -> list[Any]:
        questions = ("Where did Ada move?", "What did Ada buy?")
        return await asyncio.gather(*(program.acall(history=SAID, question=question) for question in questions))

    with dspy.context(lm=language_model("offline")):
        answers = [found.answer for found in asyncio.run(ask())]
        questions = ("Where did Ada move?", "What did Ada buy?")
        assert answers == [program(history=SAID, question=question).answer for question in questions]
    assert "Lisbon" in answers[0]
