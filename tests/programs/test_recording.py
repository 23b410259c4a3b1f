"""Recording: every predictor call of a block, in program order, whatever became of it."""

from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler.programs.adapter import CorrectingAdapter
from mempiler.programs.gather import gather
from mempiler.programs.predictor import predictor
from mempiler.programs.recording import recording, refuse


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
    with dspy.context(lm=scripted(reply), adapter=CorrectingAdapter()), recording() as calls:
        ask(thing="first")
        gather([lambda: (ask(thing="b one"), ask(thing="b two")), lambda: ask(thing="c")])
        ask(thing="last")
    assert [call.inputs["thing"] for call in calls] == ["first", "b one", "b two", "c", "last"]
    assert all(call.completions[0].text.startswith("[[ ## name") for call in calls)


@pytest.mark.parametrize("said", ["", "no heading at all", "[[ ## other ## ]]\nx"])
def test_unreadable_output_is_kept_raw_with_what_was_wrong(scripted: Any, said: str) -> None:
    ask = predictor(Name)
    with dspy.context(lm=scripted(lambda *_: said), adapter=CorrectingAdapter(0)), recording() as calls:
        with pytest.raises(AdapterParseError):
            ask(thing="x")
        with pytest.raises(AdapterParseError):
            ask(thing="y")
    assert [completion.text for call in calls for completion in call.completions] == [said, said]
    assert calls[0].error
    assert [message["role"] for message in calls[0].completions[0].messages] == ["system", "user"]


def test_a_correction_is_a_second_completion_of_the_same_call(scripted: Any) -> None:
    ask = predictor(Name)
    lm = scripted(lambda kind, text, n: "junk" if n == 1 else {"name": "x"})
    with dspy.context(lm=lm, adapter=CorrectingAdapter(1)), recording() as calls:
        ask(thing="x")
    assert [len(call.completions) for call in calls] == [2]
    assert calls[0].error is None


def test_refusals_belong_to_the_latest_call_of_the_predictor(scripted: Any) -> None:
    one, other = predictor(Name), predictor(Name)
    with dspy.context(lm=scripted(lambda *_: {"name": "x"})), recording() as calls:
        one(thing="1")
        one(thing="2")
        other(thing="3")
        refuse(one, 2)
        refuse(one, 0)
    assert [call.refused for call in calls] == [0, 2, 0]


def test_the_engines_own_record_is_put_beside_each_call(scripted: Any) -> None:
    from contextlib import contextmanager
    from types import SimpleNamespace

    ask = predictor(Name)
    with dspy.context(lm=scripted(lambda *_: {"name": "x"})), recording() as plain:
        ask(thing="x")
    assert plain[0].completions[0].sample is None

    @contextmanager
    def filled() -> Any:
        yield [SimpleNamespace(text="raw", messages=({"role": "user", "content": "q"},))]

    with dspy.context(lm=scripted(lambda *_: {"name": "x"})), recording(filled) as calls:
        ask(thing="x")
    assert calls[0].completions[0].text == "raw"
    assert calls[0].completions[0].sample.text == "raw"


def test_without_a_recording_nothing_is_kept_and_nothing_changes(scripted: Any) -> None:
    ask = predictor(Name)
    with dspy.context(lm=scripted(lambda *_: {"name": "x"})):
        with recording() as calls:
            pass
        assert ask(thing="x").name == "x"
        refuse(ask, 1)
    assert calls == []
