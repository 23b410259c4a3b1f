"""Cases and what came of them: votes for an option, and items that are made from several records."""

from __future__ import annotations

from typing import Any

import dspy
import pydantic
import pytest
from mempiler.engines.offline import OfflineEngine
from mempiler.engines.offline.groups import groups
from mempiler.engines.offline.units import read_units

RECORDS = [
    *(f"[r{n}] (2 May 2023) Ann: red apple, box {n} => eaten" for n in range(1, 7)),
    *(f"[r{n}] (3 May 2023) Ann: green pear, box {n} => thrown away" for n in range(7, 13)),
    *(f"[r{n}] (4 May 2023) Ann: blue plum, box {n} => kept in the cellar" for n in range(13, 19)),
]


class Habit(pydantic.BaseModel):
    said: str
    note_ids: list[str]


make_signature: Any = dspy.Signature
"""Typed loosely: its metaclass takes arguments that type checkers do not see."""


def run(signature: Any, demos: list[dict[str, Any]] | None = None, **inputs: Any) -> dspy.Prediction:
    predict = dspy.Predict(signature)
    predict.demos = demos or []
    lm = dspy.LM("offline/extractive-1", engine=OfflineEngine(), temperature=0.0, cache=False)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        return predict(**inputs)


def habits(notes: str) -> list[Habit]:
    fields = {"notes": (str, dspy.InputField()), "habits": (list[Habit], dspy.OutputField())}
    return run(make_signature(fields, "Find habits."), notes=notes).habits


def test_an_item_that_cites_several_records_says_what_they_share():
    found = {tuple(habit.note_ids): habit.said for habit in habits("\n".join(RECORDS))}
    assert found[tuple(f"r{n}" for n in range(1, 7))] == "red apple box => eaten"
    assert found[tuple(f"r{n}" for n in range(13, 19))] == "blue plum box => kept cellar"


def test_records_that_say_the_same_are_one_item_in_their_own_words():
    lines = [f"[r{n}] (2 May 2023) Ann: Red apple => eaten" for n in range(3)]
    assert [(habit.said, habit.note_ids) for habit in habits("\n".join([*lines, RECORDS[9]]))] == [
        ("Red apple => eaten", ["r0", "r1", "r2"])
    ]


def test_two_alike_records_are_too_few():
    assert groups(read_units("\n".join(RECORDS[:2]))) == []
    assert [habit.note_ids for habit in habits("\n".join(RECORDS[:2]))] == [["r1"], ["r2"]]


def test_what_only_half_of_the_records_came_to_is_not_shared():
    mixed = [f"[m{n}] Ann: red apple {n} => {'eaten' if n % 2 else 'sold'}" for n in range(8)]
    others = [f"[o{n}] Ann: green pear {n} => burnt" for n in range(8)]
    assert [group.text for group in groups(read_units("\n".join(mixed + others)))] == ["green pear => burnt"]


CHOICES = [
    {"question": "cherry?", "options": ["eaten", "thrown away"], "answer": "eaten"},
    {"question": "melon?", "options": ["eaten", "thrown away"], "answer": "thrown away"},
]


@pytest.mark.parametrize(
    ("question", "answer"), [("A green pear?", "thrown away"), ("A red apple?", "eaten"), ("A pear 9?", "thrown away")]
)
def test_among_options_like_cases_vote(question: str, answer: str):
    fields = "records, question, options: list[str] -> answer"
    found = run(
        make_signature(fields, "Choose."),
        CHOICES,
        records="\n".join(RECORDS[:12]),
        question=question,
        options=["eaten", "thrown away"],
    )
    assert found.answer == answer


def test_an_option_counts_only_where_the_outcome_names_it():
    """The title says 5, the outcome 2."""
    fields = "records, question, options: list[str] -> answer"
    demos = [{"question": "old film?", "options": ["2", "5"], "answer": value} for value in ("2", "5")]
    records = '[r1] Ann: film "Part 5", drama => rated 2\n[r2] Ann: film "Part 5", comedy => rated 2'
    question = 'film "Part 5", drama?'
    found = run(make_signature(fields, "Choose."), demos, records=records, question=question, options=["2", "5"])
    assert found.answer == "2"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("red apple. Is it eaten?", "Yes"),
        ("green pear. Is it eaten?", "No"),
        ("green pear. Is it thrown away?", "Yes"),
    ],
)
def test_yes_or_no_is_whether_the_outcomes_of_like_cases_have_the_words_of_the_question(question: str, answer: str):
    demos = [
        {"question": "melon. Is it sold?", "answer": "Yes"},
        {"question": "melon. Is it left?", "answer": "No"},
    ]
    fields = "records, question -> answer"
    assert (
        run(make_signature(fields, "Say."), demos, records="\n".join(RECORDS[:12]), question=question).answer == answer
    )
