"""Answers made to hang or crash a reader: read, or refused, in time that grows with their length alone."""

import contextlib
import json
import time
from collections import Counter
from typing import Annotated, Any, Literal

import dspy
import pytest
from mempiler.reading.answer import Layout, read_answer
from mempiler.reading.ids import Shown
from mempiler.reading.kinds import UnreadableError
from mempiler.signatures.answering import ChooseFromContext
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


Ids = Annotated[list[str], Shown("dialogue")]
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
    "blanks in an answer": (ChooseFromContext, json.dumps({"answer": "answer" + "\n" * 40_000 + "!"}), "json"),
    "a box of blanks": (ChooseFromContext, json.dumps({"answer": "\\boxed" + "\n" * 400 + "{"}), "json"),
}


def read(kind: Any, text: str, layout: Layout = "headers") -> tuple[Any, Counter[str]]:
    """The first output of an answer to a signature, or to one with an output of a type; and its mends by kind."""
    if not (isinstance(kind, type) and issubclass(kind, dspy.Signature)):
        kind = dspy.Signature({"dialogue": (str, dspy.InputField()), "facts": (kind, dspy.OutputField())}, "x")
    dialogue = "\n".join(f"[D1:{n}] Ann: x" for n in range(48))
    said = text if layout == "json" else MARKER + text
    found, mends = read_answer(kind, said, {"dialogue": dialogue, "options": ["(a) x", "(b) y"]}, layout=layout)
    return next(iter(found.values())), Counter(mend.kind for mend in mends)


@pytest.mark.parametrize("name", COSTLY)
def test_what_costs_more_than_its_length_is_refused(name: str) -> None:
    kind, text, layout = COSTLY[name]
    started = time.process_time()
    with contextlib.suppress(UnreadableError):
        read(kind, text.replace("facts", "answer") if kind is ChooseFromContext else text, layout)
    # 4 seconds to minutes before there were bounds, in which no other thread runs.
    assert time.process_time() - started < 2


def test_what_is_beyond_the_bounds_is_counted_and_the_rest_is_read() -> None:
    found, mends = read(Ids, json.dumps([f"D1:{n % 48}" for n in range(20_500)]))
    assert (len(found) + mends["element"], mends["element"] > 0) == (20_500, True)
    broken, sound = QUOTES[:5_000] + '"]', '{"text": "a"}'
    found, mends = read(list[Fact], json.dumps([broken] * 20 + [sound] * 5))
    assert (found[-5:], len(found) + mends["element"]) == ([Fact(text="a")] * 5, 25)


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
def test_what_python_cannot_read_is_unreadable_or_counted(kind: Any, text: str) -> None:
    with contextlib.suppress(UnreadableError):
        found, mends = read(kind, text)
        assert mends.total()
        json.dumps(found, default=BaseModel.model_dump, allow_nan=False)
