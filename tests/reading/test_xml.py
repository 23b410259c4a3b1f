"""Reading answers in tags."""

import dspy
import pytest
from mempiler.reading.answer import read_answer
from mempiler.reading.mends import UnreadableError
from pydantic import BaseModel


class Fact(BaseModel):
    """A fact."""

    text: str
    turns: list[str] = []


class Asked(dspy.Signature):
    """Read the dialogue."""

    dialogue: str = dspy.InputField()
    answer: str = dspy.OutputField()
    facts: list[Fact] = dspy.OutputField()


FACTS = "<facts><item><text>Ann runs</text><turns><item>D1:1</item></turns></item></facts>"
DUE = {"answer": "Tom & Ann", "facts": [Fact(text="Ann runs", turns=["D1:1"])]}


@pytest.mark.parametrize(
    "text",
    [
        f"<answer>Tom &amp; Ann</answer>\n{FACTS}",
        f"<answer>\nTom & Ann\n</answer>\n\n{FACTS}",
        f"Sure!\n<answer>Tom &amp; Ann</answer>{FACTS}\nDone.",
        f"<answer>Tom &amp; Ann\n\n{FACTS}",
        f"{FACTS}<answer>Tom &amp; Ann",
        f"<answer>Tom &amp; Ann</answer>{FACTS}<answer>Another</answer>",
        '<answer kind="text">Tom &amp; Ann</answer><facts>[{"text": "Ann runs", "turns": ["D1:1"]}]</facts>',
        "<answer>Tom &amp; Ann</answer><facts><fact><text>Ann runs</text><turns><item>D1:1</item></turns></fact>"
        "<fact /></facts>",
        '[[ ## answer ## ]]\nTom & Ann\n[[ ## facts ## ]]\n[{"text": "Ann runs", "turns": ["D1:1"]}]',
        '{"answer": "Tom & Ann", "facts": [{"text": "Ann runs", "turns": ["D1:1"]}]}',
    ],
)
def test_answers_in_tags_are_read(text: str) -> None:
    assert read_answer(Asked, text, layout="xml")[0] == DUE


@pytest.mark.parametrize("empty", ["<facts></facts>", "<facts />", "<facts>\n</facts>", "<facts>[]</facts>"])
def test_an_empty_element_is_an_empty_list(empty: str) -> None:
    assert read_answer(Asked, f"<answer>x</answer>{empty}", layout="xml")[0]["facts"] == []


def test_a_text_keeps_the_tags_it_holds() -> None:
    found, _ = read_answer(Asked, "<answer>I <b>love</b> it &lt;3</answer><facts />", layout="xml")
    assert found["answer"] == "I <b>love</b> it <3"


def test_an_answer_without_a_required_element_cannot_be_read() -> None:
    with pytest.raises(UnreadableError, match="facts"):
        read_answer(Asked, "<answer>x</answer>", layout="xml")
