"""Steps are asked, checked, and asked again with what was wrong."""

import dspy
import pytest
from mempiler.data.synthesis.runner import Checked, Rejection, Runner, Step
from pydantic import BaseModel


class Verse(BaseModel):
    text: str
    number: int


class WriteVerses(dspy.Signature):
    """Write verses."""

    topic: str = dspy.InputField()
    verses: list[Verse] = dspy.OutputField()


STEP = Step("verses", WriteVerses)


def verses(*numbers):
    return {"verses": [{"text": f"line {n}", "number": n} for n in numbers]}


def at_least_two(found):
    many = len(found.verses) >= 2
    return Checked(found.verses, ()) if many else Checked(None, [f"{len(found.verses)} verses; write two"])


@pytest.fixture
def ask(scripted):
    """Asks for verses on each topic in a runner of its own; gives values, report and LM."""

    def run(reply, *topics, check=at_least_two, threads=1):
        lm, runner = scripted(reply), Runner(attempts=3, threads=threads)
        with dspy.context(lm=lm):
            found = runner.map(lambda topic: runner.ask(STEP, f"u/{topic}", {"topic": topic}, check), topics)
        return found, runner.report, lm.engine

    return run


def complaints_of(prompt):
    return prompt.split("[[ ## complaints ## ]]")[1].split("Respond with")[0].strip()


def test_a_refused_answer_is_asked_again_with_what_was_wrong(ask):
    [found], report, engine = ask(lambda kind, text, n: verses(*range(n)), "sea")
    assert [verse.number for verse in found] == [0, 1]
    assert [complaints_of(prompt) for _, prompt in engine.prompts] == ["", "- 1 verses; write two"]
    assert report.rejections == [Rejection("verses", "u/sea", ("1 verses; write two",), "retried")]


def test_an_answer_that_cannot_be_read_is_a_complaint_too(ask):
    [found], report, engine = ask(lambda kind, text, n: "no fields at all" if n < 3 else verses(1, 2), "sea")
    assert len(found) == 2
    assert any("no answer that can be read" in complaints_of(prompt) for _, prompt in engine.prompts)
    assert report.count("verses", "retried") >= 1


def test_a_step_is_given_up_after_its_attempts_and_others_go_on(ask):
    reply = lambda kind, text, n: verses(1) if "sea" in text else verses(1, 2)  # noqa: E731
    found, report, engine = ask(reply, "sea", "hill")
    assert [value is None for value in found] == [True, False]
    assert len(engine.prompts) == 4
    outcomes = [one.outcome for one in report.rejections if one.id == "u/sea"]
    assert outcomes == ["retried", "retried", "given up"]
    (counts,) = report.to_dict()["steps"]
    assert counts == {"step": "verses", "accepted": 1, "retried": 2, "left_out": 0, "given_up": 1}


def test_parts_that_were_left_out_of_a_kept_answer_are_reported(ask):
    def odd_only(found):
        kept = [verse for verse in found.verses if verse.number % 2]
        return Checked(kept or None, [f"{v.number} is even" for v in found.verses if v.number % 2 == 0])

    [found], report, engine = ask(lambda kind, text, n: verses(1, 2, 3), "sea", check=odd_only)
    assert [verse.number for verse in found] == [1, 3]
    assert len(engine.prompts) == 1
    assert report.rejections == [Rejection("verses", "u/sea", ("2 is even",), "left out")]
