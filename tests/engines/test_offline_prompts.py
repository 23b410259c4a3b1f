"""The offline engine reads the prompts of DSPy's adapters and optimizers, retries, and plain text."""

from __future__ import annotations

import time
import warnings
from typing import Any

import dspy
import pytest
from dspy.lm15 import Config, Message, Request
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.programs.compact_adapter import CompactAdapter

from tests.engines.offline_prediction import chat, make_lm, make_signature, predict

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

CONTEXT = "[D1:1] (8 May 2023) Ann: I joined a pottery class yesterday.\n[D1:2] (8 May 2023) Bob: I like fishing."
QUESTION = "When did Ann join a pottery class?"
DEMOS = [{"question": "When did Joe leave?", "answer": "3 March 2022"}, {"context": "x: y", "question": "When?"}]
ADAPTERS = {"chat": chat, "json": dspy.JSONAdapter}


def complete(*messages: Message, system: str | None = None) -> str:
    asked = Request(model="extractive-1", messages=messages, system=system, config=Config())
    return OfflineEngine().complete(asked).message.text or ""


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("kind", [dspy.Predict, dspy.ChainOfThought])
def test_every_adapter_gets_the_same_answer(adapter: str, kind: Any) -> None:
    program = kind("context, question -> answer")
    (program if kind is dspy.Predict else program.predict).demos = DEMOS
    with dspy.context(lm=make_lm(), adapter=ADAPTERS[adapter]()):
        assert program(context=CONTEXT, question=QUESTION).answer == "7 May 2023"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_retry_conversation_is_answered_like_the_request(adapter: str) -> None:
    signature = make_signature("context, question -> answer")
    messages = ADAPTERS[adapter]().format(signature, DEMOS, {"context": CONTEXT, "question": QUESTION})
    system, *turns = [(message["role"], message["content"]) for message in messages]
    asked = [Message.user(text) if role == "user" else Message.assistant(text) for role, text in turns]
    complaint = "The reply could not be parsed. Expected the field [[ ## answer ## ]]; got nothing. Please try again."
    retried = [*asked, Message.assistant("I think [[ ## answer ## ]]"), Message.user(complaint)]
    assert complete(*retried, system=system[1]) == complete(*asked, system=system[1])


def test_a_header_in_the_answer_does_not_break_the_reply() -> None:
    text = "Ann wrote [[ ## answer ## ]] on the wall."
    assert "on the wall" in predict("context, question -> answer", context=text, question="What wall?").answer


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("said", ["Tom & Eve are < 40 years.", 'She said "go" there.', "Über 5 €, 你好。"])
def test_an_answer_reaches_the_program_as_it_was_said(said: str, adapter: str) -> None:
    assert predict("context -> answer", adapter=ADAPTERS[adapter](), context=f"Bob: {said}").answer == said


def test_prompts_of_the_compact_adapter_are_answered_from_their_text() -> None:
    found = predict("context, question -> answer", adapter=CompactAdapter(), context=CONTEXT, question=QUESTION)
    assert "pottery class" in found.answer


@pytest.mark.parametrize("text", ["a" + " " * 100_000 + "b", "(" * 100_000, "```\n" * 20_000, "[1] " * 30_000])
def test_a_long_prompt_without_sense_takes_no_longer_than_another(text: str) -> None:
    began = time.process_time()
    assert complete(Message.user(text)) != ""
    assert time.process_time() - began < 5
