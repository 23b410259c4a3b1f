"""Choices and selections: every spelling is read, no answer is made up; what was released is in tests/conformance."""

import pytest
from mempiler.reading.answer import read_answer
from mempiler.reading.kinds import UnreadableError
from mempiler.signatures.answering import ChooseFromContext
from mempiler.signatures.pal import SelectSolutions

LETTERS = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]
SOLUTIONS = [f"S{n}: solution {n}" for n in range(1, 9)]


def test_the_text_of_an_option_chooses_it_and_none_or_several_are_asked_for_again() -> None:
    for reply in ("A swim", "(b) a swim", "I'd go for (b): a swim.", "B"):
        found, _ = read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": LETTERS})
        assert found["answer"] == "(b)"
    for reply in ("(a) or (b)", "(b), not (a)", "a or b", "none", "e", "", "I cannot tell.", "a/b"):
        with pytest.raises(UnreadableError, match="chooses none of the 4 options, or several"):
            read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": LETTERS})


@pytest.mark.parametrize(
    "reply",
    [
        *("[2,7]", "S2, S7", '["S2: solution 2", "s7"]', '{"S2": 1, "S7": 1}', "- S2\n- S 07"),
        '```json\n{"answer": ["S1"]}\n```\nBut:\n```json\n{"answer": ["S2", "S7"]}\n```',
        '["Ｓ2", null, "S7"]',
    ],
)
def test_a_selection_is_read_in_every_spelling(reply: str) -> None:
    answer = f"[[ ## analysis ## ]]\nboth suit\n\n[[ ## answer ## ]]\n{reply}"
    assert read_answer(SelectSolutions, answer, {"options": SOLUTIONS})[0]["answer"] == ["S2", "S7"]


def test_an_unknown_id_is_dropped_and_counted() -> None:
    found, mends = read_answer(SelectSolutions, '{"analysis": "x", "answer": ["S9", "S1"]}', {"options": SOLUTIONS})
    assert found["answer"] == ["S1"]
    assert ("element", "answer[0]") in [(mend.kind, mend.where) for mend in mends]
