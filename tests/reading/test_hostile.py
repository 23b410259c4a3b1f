"""Answers made to hang or crash a reader, whole or while they are written: read, or refused, in time by length."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Literal

import dspy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mempiler.reading.answer import read_answer
from mempiler.reading.ids import IdFrom
from mempiler.reading.layouts import Layout
from mempiler.reading.markers import escape_markers
from mempiler.reading.partial import PartialAnswer
from mempiler.reading.repairs import UnreadableError
from mempiler.signatures.answering import ChooseFromContext, RespondPersonally
from mempiler.signatures.pgr import UpdateFacts
from pydantic import BaseModel

N = 40_000
MARKER = "[[ ## facts ## ]]\n"
HOSTILE = {
    "blanks": " " * N,
    "an open fence and blanks": "```" + " " * N,
    "a fence with an endless name": "```" + "a" * N,
    "brackets": "[" * N,
    "open thoughts": "<think>" * (N // 7),
    "a field of brackets": MARKER + "[" * N,
    "a field of objects": MARKER + '{"a":' * (N // 5),
    "a field of quotes": MARKER + '["' + '"' * N,
    "a field of commas": MARKER + "," * N,
    "letters": "a " * (N // 2),
    "boxes": "\\boxed{" * (N // 7),
    "headings": "facts: \n" * (N // 8),
    "signs": MARKER + "#" + "~" * N,
}


class Fact(BaseModel):
    text: str
    count: int = 0
    weight: float = 0.0


Ids = Annotated[list[str], IdFrom("dialogue")]
QUOTES = '["' + ',"a:"' * 3_200 + '"]'
BRACES = "['" + '{"])' * 1_500 + '"}'
COSTLY: dict[str, tuple[Any, str, Layout]] = {
    **{f"{name} of facts": (UpdateFacts, text, "json") for name, text in HOSTILE.items()},
    **{f"{name} of an answer": (ChooseFromContext, text, "json") for name, text in HOSTILE.items()},
    "repair of quotes": (list[Fact], QUOTES, "headers"),
    "repair of braces": (list[Fact], BRACES, "headers"),
    "a long literal": (list[Fact], "[" + "'a'," * 1_000_000 + "]", "headers"),
    "a long list": (list[Fact], "[" + "1," * 1_000_000 + "1]", "headers"),
    "many ids": (Ids, json.dumps([f"X{n}" for n in range(21_000)]), "headers"),
    "blanks behind a number": (int, json.dumps("1" + "\n" * 40_000 + "x"), "headers"),
    "blanks in an answer": (
        ChooseFromContext,
        json.dumps({"answer": "answer" + "\n" * 40_000 + "!"}),
        "json",
    ),
    "a box of blanks": (
        ChooseFromContext,
        json.dumps({"answer": "\\boxed" + "\n" * 400 + "{"}),
        "json",
    ),
}


def read(kind: Any, text: str, layout: Layout = "headers") -> tuple[Any, Counter[str]]:
    """The first output of an answer to a signature, or to one with an output of a type; and its mends by kind."""
    if not (isinstance(kind, type) and issubclass(kind, dspy.Signature)):
        kind = dspy.Signature(
            {"dialogue": (str, dspy.InputField()), "facts": (kind, dspy.OutputField())}, "x"
        )
    dialogue = "\n".join(f"[D1:{n}] Ann: x" for n in range(48))
    said = text if layout == "json" else MARKER + text
    found, mends = read_answer(
        kind, said, {"dialogue": dialogue, "options": ["(a) x", "(b) y"]}, layout=layout
    )
    return next(iter(found.values())), Counter(mend.kind for mend in mends)


@pytest.mark.parametrize("name", COSTLY)
def test_texts_that_are_expensive_to_parse_are_given_up_in_time(name: str) -> None:
    kind, text, layout = COSTLY[name]
    started = time.process_time()
    with contextlib.suppress(UnreadableError):
        read(kind, text.replace("facts", "answer") if kind is ChooseFromContext else text, layout)
    # 4 seconds to minutes before there were bounds, in which no other thread runs.
    assert time.process_time() - started < 2


def test_elements_beyond_the_bounds_are_counted_and_the_rest_is_read() -> None:
    found, mends = read(Ids, json.dumps([f"D1:{n % 48}" for n in range(20_500)]))
    assert len(found) + mends["element"] == 20_500
    assert mends["element"] > 0
    broken, sound = QUOTES[:5_000] + '"]', '{"text": "a"}'
    found, mends = read(list[Fact], json.dumps([broken] * 20 + [sound] * 5))
    assert found[-5:] == [Fact(text="a")] * 5
    assert len(found) + mends["element"] == 25


HEX, DIGITS = "0x" + "f" * 5_000, "9" * 5_000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (list[Fact], f"[{{'text': {HEX}}}]"),
        (list[Fact], f"[{{'text': 'a', 'weight': 0x{'f' * 2_000}}}]"),
        (list[Fact], "[{'text': 'a', 'weight': 1e999}]"),
        (Ids, f'[{HEX}, "D1:{DIGITS}"]'),
        (list[Literal["a", "b"]], f"[{HEX}]"),
        (dict[str, str], f"{{'a': {HEX}}}"),
        (int, "{(1, 2): 3}"),
        (int, DIGITS),
        (float, DIGITS[:4_000]),
        (float, "NaN"),
        (list[Fact], '{"```json[```json[ }'),
        (list[Fact], '[{"text": ' + "[" * 600 + "]" * 600 + "}]"),
    ],
)
def test_values_that_python_cannot_read_are_unreadable_or_counted(kind: Any, text: str) -> None:
    with contextlib.suppress(UnreadableError):
        found, mends = read(kind, text)
        assert mends.total()
        json.dumps(found, default=BaseModel.model_dump, allow_nan=False)


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
    growing, places = (
        PartialAnswer("answer", layout),
        sorted({0, *(min(n, len(text)) for n in at), len(text)}),
    )
    return [growing.add_piece(text[start:end]) for start, end in pairwise(places)]


def written(layout: Layout, reasoning: str, answer: str) -> str:
    """An answer in a layout."""
    shown = [escape_markers(each) for each in (reasoning, answer)]
    if layout == "json":
        shown = list(map(json.dumps, shown))
    return WRITTEN[layout].format(reasoning=shown[0], answer=shown[1])


@pytest.mark.parametrize("layout", LAYOUTS)
@given(reasoning=st.none() | texts, answer=texts, at=cuts)
@example(
    reasoning=None, answer="[[ ## answer ## ]]\ntea\n\n[[ ## completed ## ]]", at=list(range(60))
)
def test_any_text_and_an_answer_in_its_layout_give_the_beginning_of_what_is_read(
    layout, reasoning, answer, at
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
def test_answer_in_plain_words_is_given_whole(
    layout: Layout, reasoning: str, answer: str, at: list[int]
) -> None:
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
def test_text_that_may_still_change_is_held_back(layout: Layout, text: str, given: str) -> None:
    assert "".join(grown(text, [], layout)) == given
    assert "".join(grown(text, list(range(len(text))), layout)) == given


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_answers_are_followed_in_time(layout: Layout, name: str) -> None:
    text = HOSTILE[name].replace("facts", "answer")
    started = time.process_time()
    grown(text, range(0, len(text), 16), layout)
    assert time.process_time() - started < 3


def test_nothing_is_read_after_a_stop() -> None:
    partial = PartialAnswer("answer")
    assert partial.add_piece("[[ ## answer ## ]]\ntea") == "tea"
    partial.stop()
    assert partial.add_piece("[[ ## answer ## ]]\ntea and coffee") == ""
