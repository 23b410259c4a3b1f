"""Recording: every predictor call of a block, in program order, whatever became of it."""

from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler.programs.adapter import CorrectingAdapter
from mempiler.programs.predictor import predictor
from mempiler.programs.recording import record_failure, recording, refuse
from mempiler.programs.threads import gather
from mempiler.records import Failure


class Name(dspy.Signature):
    """Name a thing."""

    thing: str = dspy.InputField()
    name: str = dspy.OutputField()


def test_calls_come_in_program_order_whatever_ran_at_the_same_time(scripted: Any) -> None:
    import time

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        time.sleep(0.02 * ("b" in text))
        return {"name": "x"}

    ask = predictor(Name)
    with dspy.context(lm=scripted(reply), adapter=CorrectingAdapter()), recording(raw=True) as record:
        ask(thing="first")
        gather([lambda: (ask(thing="b one"), ask(thing="b two")), lambda: ask(thing="c")])
        ask(thing="last")
    assert [call.inputs["thing"] for call in record.calls] == ["first", "b one", "b two", "c", "last"]
    assert all(call.completions[0].text.startswith("[[ ## name") for call in record.calls)


def test_a_correction_is_a_completion_of_the_same_call_and_what_stays_unreadable_is_kept_raw(scripted: Any) -> None:
    one, other = predictor(Name), predictor(Name)
    lm = scripted(lambda kind, text, n: "junk" if n in (1, 4, 5) else {"name": "x"})
    with dspy.context(lm=lm, adapter=CorrectingAdapter(1)), recording(raw=True) as record:
        for ask in (one, one):
            ask(thing="x")
        with pytest.raises(AdapterParseError):
            other(thing="x")
        refuse(one, 2)
    assert [[each.text[:4] for each in call.completions] for call in record.calls] == [
        ["junk", "[[ #"],
        ["[[ #"],
        ["junk", "junk"],
    ]
    assert [call.error is None for call in record.calls] == [True, True, False]
    assert [call.refused for call in record.calls] == [0, 2, 0]
    assert [message["role"] for message in record.calls[0].completions[0].messages] == ["system", "user"]


def test_an_inner_recording_keeps_what_it_hears_to_itself_and_no_prompts_that_it_does_not_want(scripted: Any) -> None:
    """Steps that write a memory outlive the question that needed it first: their prompts must not."""
    ask = predictor(Name)
    with dspy.context(lm=scripted(lambda *_: {"name": "x"})), recording(raw=True) as outer:
        ask(thing="before")
        with recording() as inner:
            ask(thing="within")
            record_failure(Failure(kind="error", where="x", message="y"))
        ask(thing="after")
    assert [(call.inputs["thing"], len(call.completions)) for call in outer.calls] == [("before", 1), ("after", 1)]
    assert [(call.inputs["thing"], len(call.completions)) for call in inner.calls] == [("within", 0)]
    assert (len(inner.failures), outer.failures) == (1, [])
