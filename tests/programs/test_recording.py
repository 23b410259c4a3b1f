"""Recording: every predictor call of a block, in program order, whatever became of it."""

from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler.programs.adapter import CorrectingAdapter
from mempiler.programs.gather import gather
from mempiler.programs.predictor import predictor
from mempiler.programs.recording import record_context, record_failure, recording, refuse
from mempiler.records import Context, Failure, Query


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


@pytest.mark.parametrize("said", ["", "no heading at all", "[[ ## other ## ]]\nx"])
def test_unreadable_output_is_kept_raw_with_what_was_wrong(scripted: Any, said: str) -> None:
    ask = predictor(Name)
    with dspy.context(lm=scripted(lambda *_: said), adapter=CorrectingAdapter(0)), recording(raw=True) as record:
        with pytest.raises(AdapterParseError):
            ask(thing="x")
        with pytest.raises(AdapterParseError):
            ask(thing="y")
    assert [completion.text for call in record.calls for completion in call.completions] == [said, said]
    assert record.calls[0].error
    assert [message["role"] for message in record.calls[0].completions[0].messages] == ["system", "user"]


def test_a_correction_is_a_second_completion_of_the_same_call(scripted: Any) -> None:
    ask = predictor(Name)
    lm = scripted(lambda kind, text, n: "junk" if n == 1 else {"name": "x"})
    with dspy.context(lm=lm, adapter=CorrectingAdapter(1)), recording(raw=True) as record:
        ask(thing="x")
    assert [len(call.completions) for call in record.calls] == [2]
    assert record.calls[0].error is None


def test_refusals_belong_to_the_latest_call_of_the_predictor(scripted: Any) -> None:
    one, other = predictor(Name), predictor(Name)
    with dspy.context(lm=scripted(lambda *_: {"name": "x"})), recording(raw=True) as record:
        one(thing="1")
        one(thing="2")
        other(thing="3")
        refuse(one, 2)
        refuse(one, 0)
    assert [call.refused for call in record.calls] == [0, 2, 0]


def test_failures_and_contexts_are_in_the_same_record() -> None:
    failures = [Failure(kind="parse", where=where, message="no") for where in ("manage", "extract")]
    with recording() as record:
        gather([lambda failure=failure: record_failure(failure) for failure in failures])
        record_context(Context(notes={"a": "b"}), Query(text="Where?"))
    assert [failure.where for failure in record.failures] == ["extract", "manage"]
    assert [context.notes for context in record.contexts] == [{"a": "b"}]


def test_an_inner_recording_keeps_what_it_hears_to_itself(scripted: Any) -> None:
    ask = predictor(Name)
    with dspy.context(lm=scripted(lambda *_: {"name": "x"})), recording() as outer:
        ask(thing="before")
        with recording() as inner:
            ask(thing="within")
            record_failure(Failure(kind="error", where="x", message="y"))
        ask(thing="after")
    assert [call.inputs["thing"] for call in outer.calls] == ["before", "after"]
    assert ([call.inputs["thing"] for call in inner.calls], outer.failures) == (["within"], [])


def test_prompts_of_an_inner_recording_are_kept_by_nobody_who_did_not_ask(scripted: Any) -> None:
    """Steps that write a memory outlive the question that needed it first: their prompts must not."""
    ask = predictor(Name)
    with dspy.context(lm=scripted(lambda *_: {"name": "x"})), recording(raw=True) as outer:
        ask(thing="outer")
        with recording() as inner:
            ask(thing="inner")
        ask(thing="outer again")
    assert [len(call.completions) for call in outer.calls] == [1, 1]
    assert [len(call.completions) for call in inner.calls] == [0]
