"""The tasks of PAL-Bench: what they search with, what the model is shown, and what a method is told of them."""

from collections.abc import Sequence
from typing import Any

import dspy
import pytest
from mempiler import Context, Hit, Logs, Turn, UserError
from mempiler.programs.tasks.task import task
from mempiler.signatures.pal import ASSISTANT_ACTIONS

NAMES = ("requirement-restatement", "solution-proposal", "solution-selection", "dialogue-reply")
OPTIONS = [f"S{n}: way {n}" for n in range(1, 9)]
LOGS = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))


@pytest.fixture
def ask(scripted: Any) -> Any:
    """Asks a task under a scripted model; gives the prediction and the prompt."""

    def run(name: str, recent: Sequence[Any] = (), **fields: Any) -> tuple[dspy.Prediction, str]:
        reply = {"analysis": "x", "answer": ["S2", "S7"]} if name == "solution-selection" else {"answer": "done"}
        lm = scripted(lambda *call: reply)
        context = Context(hits=(Hit(id="f1", text="likes calm"),))
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
            asked = task(name)()
            found = asked(context=context, query=asked.query(fields, recent=recent))
        return found, lm.engine.prompts[0][1]

    return run


@pytest.mark.parametrize("name", NAMES)
def test_the_model_sees_context_query_and_recent_logs(name: str, ask: Any) -> None:
    found, text = ask(name, question="how?", options=OPTIONS, recent=(LOGS,))
    assert all(part in text for part in ("likes calm", "how?", "bought a bike"))
    assert found.answer == (["S2", "S7"] if name == "solution-selection" else "done")


@pytest.mark.parametrize(
    ("name", "fields", "about", "modality"),
    [
        ("requirement-restatement", {}, "needs", "question"),
        ("solution-proposal", {}, "solutions", "question"),
        ("solution-selection", {"options": OPTIONS}, "solutions", "question"),
        ("dialogue-reply", {"action": "requirement prediction"}, "needs", "dialogue"),
        ("dialogue-reply", {"action": "solution proposal"}, "solutions", "dialogue"),
        ("dialogue-reply", {"action": "feedback response"}, "solutions", "dialogue"),
        ("dialogue-reply", {}, "needs", "dialogue"),
        ("dialogue-reply", {"dialogue": "user: hi\nassistant: hm"}, "solutions", "dialogue"),
    ],
)
def test_methods_are_told_what_a_query_is_about(name: str, fields: dict[str, Any], about: str, modality: str) -> None:
    query = task(name)().query({"question": "how?", **fields})
    assert (query.about, query.modality) == (about, modality)


def test_a_reply_is_of_the_kind_that_is_asked_for(ask: Any) -> None:
    for action, meaning in ASSISTANT_ACTIONS.items():
        _, text = ask("dialogue-reply", question="yes", dialogue="user: fit?\nassistant: why?", action=action)
        assert all(part in text for part in (action, meaning, "assistant: why?"))
    with pytest.raises(UserError, match="'shouting' is no kind of reply; one of: requirement prediction"):
        ask("dialogue-reply", question="yes", action="shouting")
