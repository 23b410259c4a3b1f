"""perf/graphiti_prompts.py: how many sessions Graphiti can add within a model's context.

The script adds conversations to Graphiti with a stand-in for the model, which counts the tokens of
prompts and refuses those that are too long. In these tests a token is a word, and Graphiti is a
small class that shows all earlier sessions in its prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.records import History, Session, Turn
from mempiler.systems.process import SystemFailedError

HISTORY = History(
    id="conv-1",
    items=(
        Session(id="D1", turns=(Turn(id="D1:1", speaker="Ann", text="I moved to Lisbon."),)),
        Session(id="D2", turns=(Turn(id="D2:1", speaker="Ben", text="I bought a boat."),)),
        Session(id="D3", turns=(Turn(id="D3:1", speaker="Ann", text="I sold it."),)),
    ),
)


def count_words(messages: Sequence[Mapping[str, str]]) -> int:
    """Count the tokens of a prompt; here a token is a word."""
    return sum(len(message["content"].split()) for message in messages)


class GrowingSystem:
    """Asks the model about a session, with all sessions before it, as Graphiti does."""

    form = "ExtractedEntities"
    """The name of the form in which it asks for an answer."""

    def __init__(self, folder: Path, embedder: TextEmbedder) -> None:
        self.lines: list[str] = []

    def add(self, session: Session) -> None:
        lines = [f"{turn.speaker}: {turn.text}" for turn in session.turns]
        content = "\n".join([*self.lines, *lines])
        try:
            dspy.settings.lm(
                messages=[{"role": "user", "content": content}],
                response_format={"json_schema": {"name": self.form}},
            )
        except ValueError as error:
            raise SystemFailedError("graphiti", str(error)) from error
        self.lines.extend(lines)

    def close(self) -> None: ...


def test_the_stand_in_names_those_who_speak_in_the_session_that_is_added(script: Any) -> None:
    """Graphiti asks the model which people a session is about.

    The stand-in answers with the speakers: here Ann. Ben spoke before, and is only mentioned.
    """
    stand_in = script("graphiti_prompts").StandIn(count_words, 100, ("Ann", "Ben"))
    prompt = (
        "<PREVIOUS MESSAGES>\nBen: Hello Ann.\n</PREVIOUS MESSAGES>\n"
        "<CURRENT MESSAGE>\nAnn: Ben is away.\nNote: he sails.\n</CURRENT MESSAGE>"
    )

    [answer] = stand_in(
        messages=[{"role": "user", "content": prompt}],
        response_format={"json_schema": {"name": "ExtractedEntities"}},
    )

    assert [entity["name"] for entity in json.loads(answer)["extracted_entities"]] == ["Ann"]


def test_a_session_is_refused_when_its_prompt_is_longer_than_the_context(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The context has ten words. The prompts have 5, 10 and 14: each shows all sessions so far."""
    script("graphiti_prompts").add_sessions(HISTORY, GrowingSystem, count_words, 10)

    assert capsys.readouterr().out.splitlines() == [
        "conv-1         D1                     5",
        "conv-1         D2                    10",
        "conv-1         D3                    14   refused",
        "conv-1: 2 of 3 sessions added, 3 prompts of 29 tokens, 1 of them refused",
    ]


class NewerSystem(GrowingSystem):
    """Another version of Graphiti, which asks for an answer in a form that is not known."""

    form = "Something"


def test_a_session_that_fails_for_another_reason_ends_the_script(script: Any) -> None:
    with pytest.raises(SystemFailedError, match="Graphiti asks for Something"):
        script("graphiti_prompts").add_sessions(HISTORY, NewerSystem, count_words, 10)
