"""An output of an answer that is being written: what is given is the beginning of what is read in the end."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mempiler.reading.answer import Layout, read_answer
from mempiler.reading.kinds import UnreadableError
from mempiler.reading.markers import neutral
from mempiler.reading.partial import PartialAnswer, followed
from mempiler.signatures.answering import AnswerFromContext, ChooseFromContext, RespondPersonally

from .test_hostile import HOSTILE

LAYOUTS: tuple[Layout, ...] = ("headers", "json")
PARTS = (
    "[[ ## answer ## ]]\n", "[[ ## reasoning ## ]]\n", "[[ ## completed ## ]]", "## answer ##", "**## answer ##",
    "## x", "<answer>", "</answer>", "<br>", "</", "&amp;", "#~# answer ##", "#~", "<~", "[", "]", "]]", "#", "##",
    "＃＃", "**", "*",
    '{"reasoning": "', '{"answer": "', '", "answer": "', '"}', '"', "\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\",
    '{"a": {', '"answer": 5', "```json\n", "```", "<think>", "</think>", "<thinking>", "Answer: ", "tea", "I moved.",
    " ", "\n", "\n\n", "  \n", " " * 41, "\n" * 41, " " * 39, "\t", "é", "😀", "x" * 120,
)  # fmt: skip
"""What texts are made of that readers find difficult."""
WRITTEN = {
    "headers": "[[ ## reasoning ## ]]\n{reasoning}\n\n[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]",
    "json": '{{"reasoning": {reasoning}, "answer": {answer}}}',
}
"""An answer as it is asked for."""

texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=14).map("".join)
cuts = st.lists(st.integers(0, 400), max_size=12)


def grown(text: str, at: Sequence[int], layout: Layout) -> list[str]:
    """What is given at each piece of a text that is cut at some places."""
    growing, places = PartialAnswer("answer", layout), sorted({0, *(min(n, len(text)) for n in at), len(text)})
    return [growing.read(text[start:end]) for start, end in pairwise(places)]


def written(layout: Layout, reasoning: str, answer: str) -> str:
    """An answer in a layout."""
    shown = [neutral(each) for each in (reasoning, answer)]
    if layout == "json":
        shown = list(map(json.dumps, shown))
    return WRITTEN[layout].format(reasoning=shown[0], answer=shown[1])


@pytest.mark.parametrize("layout", LAYOUTS)
@given(reasoning=st.none() | texts, answer=texts, at=cuts)
@example(reasoning=None, answer="[[ ## answer ## ]]\ntea\n\n[[ ## completed ## ]]", at=list(range(60)))
def test_any_text_and_an_answer_in_its_layout_give_the_beginning_of_what_is_read(
    layout: Layout, reasoning: str | None, answer: str, at: list[int]
) -> None:
    text = answer if reasoning is None else written(layout, reasoning, answer)
    given = "".join(grown(text, at, layout))
    with suppress(UnreadableError):
        assert read_answer(RespondPersonally, text, layout=layout)[0]["answer"].startswith(given)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(
    reasoning=st.text("ab é\n.", max_size=40),
    answer=st.text('abc é😀\n.,-"\\/', max_size=40).map(str.strip),
    at=cuts,
)
def test_answer_in_plain_words_is_given_whole(layout: Layout, reasoning: str, answer: str, at: list[int]) -> None:
    text = written(layout, reasoning, answer)
    read = read_answer(RespondPersonally, text, layout=layout)[0]["answer"]
    given = "".join(grown(text, at, layout))
    assert given == read


@pytest.mark.parametrize(
    ("layout", "text", "given"),
    [
        ("headers", "[[ ## answer ## ]]\ntea\n\n[[ ## comp", "tea"),
        ("headers", "[[ ## answer ## ]]\n# Tea\n## an", "# Tea"),
        ("headers", "[[ ## answer ## ]]\n# Tea\n## and c", "# Tea\n## and c"),
        ("headers", "<think>[[ ## answer ## ]] no", ""),
        ("headers", "<think>hm</think>[[ ## answer ## ]] yes", "yes"),
        ("headers", '{"answer": "tea"}', ""),
        ("headers", "Answer: tea", ""),
        ("json", '{"reasoning": "\\"answer\\": \\"no", "answer": "tea", "b": 1}', "tea"),
        ("json", '{"reasoning": {"answer": "no"}, "answer": "tea"}', ""),
        ("json", '{"answer": "a\\ud83d', "a"),
        ("json", '{"answer": "a\\ud83d\\ude00', "a😀"),
        ("json", '{"answer": "a\\ud83dx', "a"),
        ("json", '{"answer": ["tea"]}', ""),
        ("json", "[[ ## answer ## ]]\ntea", "tea"),
    ],
)
def test_what_may_yet_change_is_held_back(layout: Layout, text: str, given: str) -> None:
    assert "".join(grown(text, [], layout)) == given
    assert "".join(grown(text, list(range(len(text))), layout)) == given


def test_choices_and_lists_are_not_followed() -> None:
    assert followed(AnswerFromContext, "answer")
    assert not followed(ChooseFromContext, "answer")
    assert not followed(AnswerFromContext, "reasoning")


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_answers_are_followed_in_time(layout: Layout, name: str) -> None:
    text = HOSTILE[name].replace("facts", "answer")
    started = time.process_time()
    grown(text, range(0, len(text), 16), layout)
    assert time.process_time() - started < 3
