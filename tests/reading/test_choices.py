"""Choices and selections: every spelling that the released readers accept is read, and no answer is made up.

Source: tests/conformance (PersonaMem's and Mem-PAL's released readers, run on inputs of our own).
"""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.reading.answer import read_answer
from mempiler.reading.choices import chosen_letter
from mempiler.reading.mends import UnreadableError
from mempiler.signatures.answering import ChooseFromContext
from mempiler.signatures.pal import SelectSolutions

VECTORS = Path(__file__).parent.parent / "conformance"
LETTERS = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]
SOLUTIONS = [f"S{n}: solution {n}" for n in range(1, 9)]

ON_PURPOSE = {
    "v2-20": "the released reader takes the T of The for a letter",
    "v2-21": "... and the N of None",
    "v2-22": "... and the O of Option",
    "v2-29": "... and the n of none",
    "v2-23": "the released reader takes the first of two final answers, ours the last",
    "v2-25": "there is no option E",
    "v2-boxed-12": "an empty box is right for an empty gold there; it chooses nothing",
}
"""Vectors that ours reads otherwise, and why."""


def letter(vector: dict[str, Any]) -> str | None:
    """The one letter that the released reader takes a reply for; None where it takes it for none, or several."""
    expected = vector["expected"]
    if isinstance(expected, dict):
        return expected["right_for"][0] if len(expected["right_for"]) == 1 else None
    if vector["id"].startswith("v2-boxed"):
        return "a" if expected == 1.0 else None
    return expected.lower() if isinstance(expected, str) else None


def vectors(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text(encoding="utf-8").splitlines()]


READ = [vector for vector in vectors("personamem_parse.jsonl") if letter(vector)]


@pytest.mark.parametrize("vector", READ, ids=[vector["id"] for vector in READ])
def test_every_letter_that_the_released_readers_accept_is_read(vector: dict[str, Any]) -> None:
    same = chosen_letter(vector["input"]["response"], LETTERS) == f"({letter(vector)})"
    assert same == (vector["id"] not in ON_PURPOSE)


@pytest.mark.parametrize("reply", ["(a) or (b)", "(b), not (a)", "a or b", "none", "e", "", "I cannot tell.", "a/b"])
def test_an_answer_that_chooses_none_or_several_is_asked_for_again(reply: str) -> None:
    with pytest.raises(UnreadableError, match="chooses none of the 4 options, or several"):
        read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": LETTERS})


@pytest.mark.parametrize("reply", ["A swim", "(b) a swim", "I'd go for (b): a swim.", "B"])
def test_the_text_of_an_option_chooses_it(reply: str) -> None:
    found, _ = read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": LETTERS})
    assert found["answer"] == "(b)"


@pytest.mark.parametrize(
    "reply",
    [
        "[2,7]",
        "[2, 7]",
        "S2, S7",
        "S2 and S7",
        '["s2", "s7"]',
        "['S2', 'S7']",
        '["S2: solution 2", "S7: solution 7"]',
        '{"S2": 1, "S7": 1}',
        '["S02", "S 7"]',
        "2 7",
        "S2、S7",
        "(S2) (S7)",
        "- S2\n- S7",
        '["S2", null, "S7"]',
        '{"selected_solutions": ["S2", "S7"]}',
        '```json\n["S2", "S7"]\n```',
        '["Ｓ2", "S7"]',
    ],
)
def test_a_selection_is_read_in_every_spelling(reply: str) -> None:
    answer = f"[[ ## analysis ## ]]\nboth suit\n\n[[ ## answer ## ]]\n{reply}"
    assert read_answer(SelectSolutions, answer, {"options": SOLUTIONS})[0]["answer"] == ["S2", "S7"]


SELECTED = [
    vector
    for vector in vectors("pal_metrics.jsonl")
    if vector["id"].startswith("select-read") and vector["expected"]["accepted"]
]


@pytest.mark.parametrize("vector", SELECTED, ids=[vector["id"] for vector in SELECTED])
def test_every_selection_that_the_released_reader_accepts_is_read(vector: dict[str, Any]) -> None:
    reply = vector["input"]["reply"].replace("selected_solutions", "answer")
    found, _ = read_answer(SelectSolutions, reply, {"options": SOLUTIONS})
    assert found["answer"] == vector["expected"]["selected"]


def test_an_unknown_id_is_dropped_and_counted() -> None:
    found, mends = read_answer(SelectSolutions, '{"analysis": "x", "answer": ["S9", "S1"]}', {"options": SOLUTIONS})
    assert found["answer"] == ["S1"]
    assert ("element", "answer[0]") in [(mend.kind, mend.where) for mend in mends]
