"""The released readers of PersonaMem's letters against ours: of whole replies, and of what a program answers."""

from collections.abc import Callable
from typing import Any

import pytest
from dspy import Example, Prediction
from mempiler.data.personamem import RightLetter
from mempiler.data.personamem_v2 import FinalLetter
from mempiler.reading.answer import read_answer
from mempiler.reading.kinds import UnreadableError
from mempiler.signatures.answering import ChooseFromContext

Agrees = Callable[..., None]
LETTERS = ["a", "b", "c", "d"]
OPTIONS = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]


def right(scorer: RightLetter, answer: str, gold: str) -> bool:
    """Whether an answer counts."""
    found = scorer.score(Example(options=OPTIONS, answer=gold), Prediction(answer=answer))
    return bool(found.value)


def read(reply: str) -> str:
    """What a program takes a reply for; "" where it is asked for again."""
    try:
        return read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": OPTIONS})[0]["answer"]
    except UnreadableError:
        return ""


def one(letters: list[str]) -> str | None:
    """The letter in upper case; None where there is none, or several."""
    return letters[0].upper() if len(letters) == 1 else None


@pytest.mark.parametrize("taken", [str, read], ids=["whole", "read"])
@pytest.mark.vectors("personamem_parse", "v1-[0-9]*")
def test_letters_of_v1(case: dict[str, Any], agrees: Agrees, taken: Callable[[str], str]) -> None:
    answer = taken(case["input"]["response"])
    agrees({"right_for": [letter for letter in LETTERS if right(RightLetter(), answer, f"({letter})")]})


@pytest.mark.vectors("personamem_parse", "v1-gold-*")
def test_gold_letters_of_v1(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(right(RightLetter(), case["input"]["response"], case["input"]["gold"]))


@pytest.mark.parametrize("taken", [str, read], ids=["whole", "read"])
@pytest.mark.vectors("personamem_parse", "v2-[0-9]*")
def test_final_answers_of_v2(case: dict[str, Any], agrees: Agrees, taken: Callable[[str], str]) -> None:
    answer = taken(case["input"]["response"])
    agrees(one([letter for letter in LETTERS if right(FinalLetter(), answer, f"({letter})")]))


@pytest.mark.vectors("personamem_parse", "v2-boxed-*")
def test_boxed_letters_of_v2(case: dict[str, Any], agrees: Agrees) -> None:
    gold = case["input"]["gold"].partition(" ")[0]  # there the text of the option follows its letter
    agrees(float(right(FinalLetter(), read(case["input"]["response"]), gold)))
