"""Free text of the offline engine: what it says without demos, and what demos and cues change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.offline_prediction import make_signature, predict

CONTEXT = "\n".join(
    [
        "[D4:2] (27 June 2023, Tuesday 10:37) Ann: Did you like the pottery class? I saw the bowls there.",
        "[D1:3] (8 May 2023, Monday 13:56) Ann: I joined a pottery class yesterday. It was fun!",
        "[D2:1] (25 May 2023, Thursday 13:14) Bob: My brother Tom ran a charity race last Saturday.",
        "[D3:7] (9 June 2023, Friday 19:55) Ann: We adopted 2 kittens from the shelter, both grey and very shy.",
    ]
)
WHEN_DEMOS = [
    {"question": "When did Joe leave Rome?", "answer": "3 March 2022"},
    {"question": "When is the fair?", "answer": "12 July 2021"},
]
WHAT_DEMOS = [
    {"question": "What did Joe eat at home?", "answer": "fish soup"},
    {"question": "What animal does Eve own?", "answer": "old horse"},
]


def ask(
    question: str, demos: list[dict[str, str]] | None = None, instructions: str = "", context: str = CONTEXT
) -> str:
    signature = make_signature("context, question -> answer", instructions)
    return predict(signature, demos or [], context=context, question=question).answer


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("Who ran a charity race?", "My brother Tom ran a charity race last Saturday."),
        ("Which class did Ann join?", "I joined a pottery class yesterday."),
        ("When did Ann join a pottery class?", "I joined a pottery class yesterday."),
    ],
)
def test_without_demos_the_best_matching_sentence_answers(question: str, sentence: str) -> None:
    assert ask(question) == sentence


@pytest.mark.parametrize(
    ("question", "demos", "answer"),
    [
        ("When did Ann join a pottery class?", WHEN_DEMOS, "7 May 2023"),
        ("When did Ann join a pottery class?", WHAT_DEMOS, "class yesterday"),
        ("When did Tom run a charity race?", WHEN_DEMOS, "20 May 2023"),
        ("What did Tom run?", WHEN_DEMOS + WHAT_DEMOS, "charity race"),
        ("How many kittens were adopted?", [{"question": "How many cats are there?", "answer": "3"}], "2"),
        ("Did Ann adopt kittens?", [{"question": "Did Joe move?", "answer": "Yes"}], "Yes"),
    ],
)
def test_demos_of_the_same_form_decide_kind_and_length(question: str, demos: list[dict[str, str]], answer: str) -> None:
    assert ask(question, demos) == answer


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ("yesterday", "7 May 2023"),
        ("tomorrow", "9 May 2023"),
        ("last week", "1 May 2023"),
        ("next month", "June 2023"),
        ("last Friday", "5 May 2023"),
        ("next Monday", "15 May 2023"),
        ("two days ago", "6 May 2023"),
        ("five months ago", "December 2022"),
        ("on 3 June 2022", "3 June 2022"),
        ("on June 3rd, 2022", "3 June 2022"),
        ("in high spirits", "8 May 2023"),
    ],
)
def test_relative_time_is_resolved_against_the_date_of_its_line(told: str, answer: str) -> None:
    """8 May 2023 is a Monday."""
    context = f"[D1:1] (8 May 2023, Monday) Ann: I visited the museum {told}.\n[D1:2] (9 May 2023) Bob: Hello Ann."
    assert ask("When did Ann visit the museum?", WHEN_DEMOS, context=context) == answer


@pytest.mark.parametrize(
    ("instructions", "question", "answer"),
    [
        ("Give the absolute date.", "When did Ann join a pottery class?", "7 May 2023"),
        ('When the question asks "when", give the absolute date.', "When did Ann join a pottery class?", "7 May 2023"),
        (
            'When the question asks "when", give the absolute date.',
            "Who joined?",
            "I joined a pottery class yesterday.",
        ),
        ("Answer with at most two words.", "Which class did Ann join?", "class yesterday"),
        ('Answer "who" with at most 2 words.', "Which class did Ann join?", "I joined a pottery class yesterday."),
    ],
)
def test_plain_cues_in_the_instructions_count_without_demos(instructions: str, question: str, answer: str) -> None:
    assert ask(question, instructions=instructions) == answer


@pytest.mark.parametrize(("context", "question"), [("", ""), ("", "Who?"), ("Ann: hi", ""), ("[]", "Who?")])
def test_empty_inputs_are_answered(context: str, question: str) -> None:
    assert isinstance(ask(question, context=context), str)


def choose(question: str, options: list[str], records: str, demos: list[dict[str, Any]] | None = None) -> str:
    signature = "records, question, options: list[str] -> answer"
    return predict(signature, demos or [], records=records, question=question, options=options).answer


RATED = "\n".join(
    [
        "[u:1] (8 May 2023) user: The Harbour, a drama about sailors => 5",
        "[u:2] (9 May 2023) user: Robot Night, a horror film => 2",
        "[u:3] (9 May 2023) user: Still Water, a drama => yes",
    ]
)
STARS = ["1", "2", "5"]


@pytest.mark.parametrize(
    ("question", "options", "answer"),
    [
        ("How many stars for a horror film?", STARS, "2"),
        ("How many stars for a drama about sailors?", STARS, "5"),
        ("Will a drama be watched?", ["No", "Yes"], "Yes"),
        ("Will a drama be watched?", ["Never", "Always"], "Never"),
    ],
    ids=["the nearest that names one", "another is nearer", "whatever its case", "none is named: the first"],
)
def test_of_a_list_of_words_one_is_chosen(question: str, options: list[str], answer: str) -> None:
    assert choose(question, options, RATED) == answer


def test_of_options_that_head_a_list_the_two_that_fit_the_rest_are_chosen() -> None:
    kinds = make_signature("memories, question, ideas: list[str] -> picks: list[Literal['A1', 'A2', 'A3', 'A4']]")
    ideas = [
        "A1: Go to a loud concert.",
        "A2: Brew green tea.",
        "A3: Climb a tower.",
        "A4: Walk along the quiet river.",
    ]
    said = "[D1:1] Ann: I love tea.\n[D1:2] Ann: The river is quiet."
    found = predict(kinds, memories=said, question="What to do today?", ideas=ideas)
    assert sorted(found.picks) == ["A2", "A4"]
