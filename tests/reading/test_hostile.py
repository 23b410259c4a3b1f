"""Answers made to hang or crash a reader are read or refused in time, also while they arrive."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

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

LENGTH = 40_000
"""Length of hostile texts, in characters."""

TURNS_OF_DIALOGUE = 48


class Fact(BaseModel):
    text: str
    count: int = 0
    weight: float = 0.0


TurnIds = Annotated[list[str], IdFrom("dialogue")]


class ReadOutput(NamedTuple):
    """The first output of an answer, and its repairs by kind."""

    value: Any
    repairs: Counter[str]


def read_first_output(
    signature: type[dspy.Signature], text: str, layout: Layout = "headers"
) -> ReadOutput:
    """Read the first output of an answer about a dialogue of 48 turns, with two options."""
    dialogue = "\n".join(f"[D1:{number}] Ann: x" for number in range(TURNS_OF_DIALOGUE))
    inputs = {"dialogue": dialogue, "options": ["(a) x", "(b) y"]}
    answer = read_answer(signature, text, inputs, layout=layout)
    first_output, *_ = signature.output_fields
    repairs = Counter(repair.kind for repair in answer.repairs)
    return ReadOutput(answer.outputs[first_output], repairs)


def read_value(value_type: Any, text: str) -> ReadOutput:
    """Read a text as the output `value`, which has this type."""
    fields = {"dialogue": (str, dspy.InputField()), "value": (value_type, dspy.OutputField())}
    signature: Any = dspy.Signature(fields, "Say it.")
    return read_first_output(signature, f"[[ ## value ## ]]\n{text}")


def check_read_or_refused_in_time(signature: type[dspy.Signature], text: str) -> None:
    """Check that an answer is read, or refused as unreadable, within two seconds."""
    start = time.process_time()
    with suppress(UnreadableError):
        read_first_output(signature, text, layout="json")
    # It took from 4 seconds to minutes before there were bounds, and no other thread runs then.
    assert time.process_time() - start < 2


# Whole answers that are expensive to parse.


def hostile_texts(output: str) -> dict[str, str]:
    """Return hostile answers to a signature with this output, by what they consist of."""
    header = f"[[ ## {output} ## ]]\n"
    return {
        "blanks": " " * LENGTH,
        "an open fence and blanks": "```" + " " * LENGTH,
        "a fence with an endless name": "```" + "a" * LENGTH,
        "brackets": "[" * LENGTH,
        "open thoughts": "<think>" * (LENGTH // 7),
        "a field of brackets": header + "[" * LENGTH,
        "a field of objects": header + '{"a":' * (LENGTH // 5),
        "a field of quotes": header + '["' + '"' * LENGTH,
        "a field of commas": header + "," * LENGTH,
        "letters": "a " * (LENGTH // 2),
        "boxes": "\\boxed{" * (LENGTH // 7),
        "headings": f"{output}: \n" * (LENGTH // 8),
        "signs": header + "#" + "~" * LENGTH,
    }


HOSTILE_FACTS = hostile_texts("facts")
HOSTILE_ANSWERS = hostile_texts("answer") | {
    "blanks in an answer": json.dumps({"answer": "answer" + "\n" * 40_000 + "!"}),
    "a box of blanks": json.dumps({"answer": "\\boxed" + "\n" * 400 + "{"}),
}


@pytest.mark.parametrize("text", HOSTILE_FACTS.values(), ids=HOSTILE_FACTS.keys())
def test_hostile_lists_of_facts_are_read_or_refused_in_time(text: str) -> None:
    """Each text is 40,000 brackets, quotes, blanks or the like, where a list of facts is due.

    Parsers without a bound would take from seconds to minutes.
    """
    check_read_or_refused_in_time(UpdateFacts, text)


@pytest.mark.parametrize("text", HOSTILE_ANSWERS.values(), ids=HOSTILE_ANSWERS.keys())
def test_hostile_choices_of_an_option_are_read_or_refused_in_time(text: str) -> None:
    """Each text is 40,000 brackets, quotes, blanks or the like, where one of two options is due.

    Parsers without a bound would take from seconds to minutes.
    """
    check_read_or_refused_in_time(ChooseFromContext, text)


# Values that are expensive to parse.

# Broken JSON that takes long to repair.
QUOTES = '["' + ',"a:"' * 3_200 + '"]'
BRACES = "['" + '{"])' * 1_500 + '"}'


@pytest.mark.parametrize(
    ("value_type", "text"),
    [
        pytest.param(list[Fact], QUOTES, id="repair of quotes"),
        pytest.param(list[Fact], BRACES, id="repair of braces"),
        pytest.param(list[Fact], "[" + "'a'," * 1_000_000 + "]", id="a long Python list"),
        pytest.param(list[Fact], "[" + "1," * 1_000_000 + "1]", id="a long JSON list"),
        pytest.param(
            TurnIds, json.dumps([f"X{number}" for number in range(21_000)]), id="many ids"
        ),
        pytest.param(int, json.dumps("1" + "\n" * 40_000 + "x"), id="blanks behind a number"),
    ],
)
def test_hostile_values_are_read_or_refused_in_time(value_type: Any, text: str) -> None:
    """Two seconds are far more than a bounded reader needs; without bounds it takes minutes."""
    start = time.process_time()
    with suppress(UnreadableError):
        read_value(value_type, text)
    assert time.process_time() - start < 2


def test_elements_beyond_the_bound_of_an_answer_are_counted() -> None:
    """Of one answer 20,000 values are read at most. Here there are 20,500 ids of turns.

    The others are left out, which is counted as repairs of the kind "element".
    """
    turn_ids = ["D1:1", "D1:2"] * 10_250

    output = read_value(TurnIds, json.dumps(turn_ids))

    left_out = output.repairs["element"]
    assert left_out > 0
    assert len(output.value) + left_out == len(turn_ids)


def test_elements_behind_some_that_are_too_expensive_are_read() -> None:
    """After a limit of work, no more broken JSON is repaired, but right elements are still read.

    Elements that are left out are counted as repairs of the kind "element".
    """
    expensive_elements = [QUOTES[:5_000] + '"]'] * 20
    elements = [*expensive_elements, '{"text": "a"}', '{"text": "b"}']

    output = read_value(list[Fact], json.dumps(elements))

    assert output.value[-2:] == [Fact(text="a"), Fact(text="b")]
    assert len(output.value) + output.repairs["element"] == len(elements)


# Python refuses to convert integers with more than 4,300 digits.
LARGE_HEX = "0x" + "f" * 5_000
LARGE_NUMBER = "9" * 5_000


@pytest.mark.parametrize(
    ("value_type", "text"),
    [
        pytest.param(list[Fact], f"[{{'text': {LARGE_HEX}}}]", id="large text"),
        pytest.param(
            list[Fact], f"[{{'text': 'a', 'weight': 0x{'f' * 2_000}}}]", id="too large for a float"
        ),
        pytest.param(list[Fact], "[{'text': 'a', 'weight': 1e999}]", id="infinity"),
        pytest.param(TurnIds, f'[{LARGE_HEX}, "D1:{LARGE_NUMBER}"]', id="large ids"),
        pytest.param(list[Literal["a", "b"]], f"[{LARGE_HEX}]", id="large choice"),
        pytest.param(dict[str, str], f"{{'a': {LARGE_HEX}}}", id="large value of a mapping"),
        pytest.param(int, "{(1, 2): 3}", id="tuple as a key"),
        pytest.param(int, LARGE_NUMBER, id="large integer"),
        pytest.param(float, LARGE_NUMBER[:4_000], id="large float"),
        pytest.param(float, "NaN", id="no number"),
        pytest.param(list[Fact], '{"```json[```json[ }', id="fences"),
        pytest.param(list[Fact], '[{"text": ' + "[" * 600 + "]" * 600 + "}]", id="deep list"),
    ],
)
def test_a_value_that_python_cannot_read_is_unreadable_or_a_counted_repair(
    value_type: Any, text: str
) -> None:
    """For instance, Python refuses to convert an integer with 5,000 digits.

    Such a value must not crash the reader, and must not reach a memory, which is stored as JSON.
    """
    try:
        output = read_value(value_type, text)
    except UnreadableError:
        return

    assert output.repairs.total()
    # What was read can be stored as JSON.
    json.dumps(output.value, default=BaseModel.model_dump, allow_nan=False)


# Answers that are read while they arrive in pieces.

LAYOUTS: list[Layout] = ["headers", "json"]
"""A prompt asks for outputs below headers such as [[ ## answer ## ]], or for one JSON object."""

DIFFICULT_PARTS = [
    # Headers and other markers, whole and in parts.
    *("[[ ## answer ## ]]\n", "[[ ## reasoning ## ]]\n", "[[ ## completed ## ]]"),
    *("## answer ##", "**## answer ##", "## x"),
    *("<answer>", "</answer>", "<br>", "</", "&amp;", "#~# answer ##", "#~", "<~"),
    *("[", "]", "]]", "#", "##", "＃＃", "**", "*"),
    # JSON and its escapes.
    *('{"reasoning": "', '{"answer": "', '", "answer": "', '"}', '"'),
    *("\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\"),
    *('{"a": {', '"answer": 5', "```json\n", "```"),
    # Thoughts and words.
    *("<think>", "</think>", "<thinking>", "Answer: ", "tea", "I moved."),
    # Blanks, of which more than 40 are shortened.
    *(" ", "\n", "\n\n", "  \n", " " * 41, "\n" * 41, " " * 39, "\t"),
    *("é", "😀", "x" * 120),
]
difficult_texts = st.lists(st.sampled_from(DIFFICULT_PARTS) | st.text(max_size=3), max_size=14).map(
    "".join
)
places_of_cuts = st.lists(st.integers(0, 400), max_size=12)


def shown_in_pieces(text: str, cuts: Sequence[int], layout: Layout) -> str:
    """Let a text arrive in pieces, cut at some places; return what a user is shown of its answer.

    The answer is the output `answer`, without headers, JSON and thoughts around it.
    """
    places = {0, len(text)}
    for cut in cuts:
        places.add(min(cut, len(text)))
    partial = PartialAnswer("answer", layout)
    shown_pieces = [partial.add_piece(text[start:end]) for start, end in pairwise(sorted(places))]
    return "".join(shown_pieces)


def completion(layout: Layout, reasoning: str, answer: str) -> str:
    """Return a completion of a model that keeps to the layout."""
    reasoning = escape_markers(reasoning)
    answer = escape_markers(answer)
    if layout == "json":
        return f'{{"reasoning": {json.dumps(reasoning)}, "answer": {json.dumps(answer)}}}'
    return (
        f"[[ ## reasoning ## ]]\n{reasoning}\n\n"
        f"[[ ## answer ## ]]\n{answer}\n\n"
        "[[ ## completed ## ]]"
    )


def read_whole_answer(text: str, layout: Layout) -> str | None:
    """Return the output `answer` of a text that has arrived as a whole; None if unreadable."""
    try:
        return read_answer(RespondPersonally, text, layout=layout).outputs["answer"]
    except UnreadableError:
        return None


@pytest.mark.parametrize("layout", LAYOUTS)
@given(text=difficult_texts, cuts=places_of_cuts)
@example(text="[[ ## answer ## ]]\ntea\n\n[[ ## completed ## ]]", cuts=list(range(60)))
def test_pieces_of_any_text_begin_the_answer_that_is_read(
    layout: Layout, text: str, cuts: list[int]
) -> None:
    """A user who watches an answer arrive must see nothing that is taken back later.

    A random text arrives in pieces, cut at random places. What is shown must be the beginning of
    the answer that is read from the whole text.
    """
    shown_text = shown_in_pieces(text, cuts, layout)

    answer = read_whole_answer(text, layout)
    assert answer is None or answer.startswith(shown_text)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(reasoning=difficult_texts, answer=difficult_texts, cuts=places_of_cuts)
def test_pieces_of_an_answer_in_its_layout_begin_the_answer_that_is_read(
    layout: Layout, reasoning: str, answer: str, cuts: list[int]
) -> None:
    """A user who watches an answer arrive must see nothing that is taken back later.

    The model keeps to the layout, and writes random texts, with parts of headers or of JSON in
    them, as its reasoning and as its answer. They arrive in pieces.
    """
    text = completion(layout, reasoning, answer)

    shown_text = shown_in_pieces(text, cuts, layout)

    answer_at_the_end = read_whole_answer(text, layout)
    assert answer_at_the_end is None or answer_at_the_end.startswith(shown_text)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(
    reasoning=st.text("ab é\n.", max_size=40),
    answer=st.text('abc é😀\n.,-"\\/', max_size=40).map(str.strip),
    cuts=places_of_cuts,
)
def test_an_answer_in_plain_words_is_shown_whole(
    layout: Layout, reasoning: str, answer: str, cuts: list[int]
) -> None:
    """Nothing is held back at the end of an answer that has no markers in it."""
    text = completion(layout, reasoning, answer)

    shown_text = shown_in_pieces(text, cuts, layout)

    assert shown_text == read_whole_answer(text, layout)


def assert_shown(text: str, expected_text: str, layout: Layout) -> None:
    """Assert what a user is shown of an answer so far, at once and character by character."""
    assert shown_in_pieces(text, cuts=[], layout=layout) == expected_text
    assert shown_in_pieces(text, cuts=range(len(text)), layout=layout) == expected_text


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        pytest.param("[[ ## answer ## ]]\ntea\n\n[[ ## comp", "tea", id="half a header"),
        pytest.param("[[ ## answer ## ]]\n# Tea\n## an", "# Tea", id="perhaps a header"),
        pytest.param("[[ ## answer ## ]]\n# Tea\n## and c", "# Tea\n## and c", id="no header"),
        pytest.param("<think>[[ ## answer ## ]] no", "", id="a header in thoughts"),
        pytest.param("<think>hm</think>[[ ## answer ## ]] yes", "yes", id="after thoughts"),
        pytest.param('{"answer": "tea"}', "", id="JSON instead of headers"),
        pytest.param("Answer: tea", "", id="a heading instead of headers"),
    ],
)
def test_text_below_headers_that_may_still_change_is_held_back(
    text: str, expected_text: str
) -> None:
    """The user is shown the answer while it arrives, and nothing of it is taken back later."""
    assert_shown(text, expected_text, layout="headers")


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        pytest.param(
            '{"reasoning": "\\"answer\\": \\"no", "answer": "tea", "b": 1}',
            "tea",
            id="the name of the output in another text",
        ),
        pytest.param(
            '{"reasoning": {"answer": "no"}, "answer": "tea"}', "", id="an object in an object"
        ),
        # The escape \\ud83d\\ude00 is one character, an emoji.
        pytest.param('{"answer": "a\\ud83d', "a", id="half an escape"),
        pytest.param('{"answer": "a\\ud83d\\ude00', "a😀", id="a whole escape"),
        pytest.param('{"answer": "a\\ud83dx', "a", id="a broken escape"),
        pytest.param('{"answer": ["tea"]}', "", id="a list instead of a text"),
        pytest.param("[[ ## answer ## ]]\ntea", "tea", id="headers instead of JSON"),
    ],
)
def test_text_in_json_that_may_still_change_is_held_back(text: str, expected_text: str) -> None:
    """The user is shown the answer while it arrives, and nothing of it is taken back later."""
    assert_shown(text, expected_text, layout="json")


@pytest.mark.parametrize(
    "text", hostile_texts("answer").values(), ids=hostile_texts("answer").keys()
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_answers_are_read_in_time_while_they_arrive(layout: Layout, text: str) -> None:
    """The answer is read again and again while it arrives, which must not add up to minutes."""
    start = time.process_time()

    # The text arrives in pieces of 16 characters.
    shown_in_pieces(text, cuts=range(0, len(text), 16), layout=layout)

    assert time.process_time() - start < 3


def test_a_partial_answer_gives_no_more_text_after_a_stop() -> None:
    """The caller stops it before a second attempt of the model, whose words would not fit."""
    partial = PartialAnswer("answer")
    assert partial.add_piece("[[ ## answer ## ]]\ntea") == "tea"

    partial.stop()

    assert partial.add_piece(" and coffee") == ""
