"""Answers made to hang or crash a reader: read, or refused, in time that grows with their length alone."""

import contextlib
import time

import pytest
from mempiler.reading.answer import Layout, read_answer
from mempiler.reading.mends import UnreadableError
from mempiler.signatures.answering import ChooseFromContext
from mempiler.signatures.pgr import UpdateFacts

N = 40_000
MARKER = "[[ ## facts ## ]]\n"
HOSTILE = {
    "blanks": " " * N,
    "line breaks": "\n" * N,
    "an open fence and blanks": "```" + " " * N,
    "fences": "```\n" * (N // 4),
    "a fence with an endless name": "```" + "a" * N,
    "brackets": "[" * N,
    "objects": '{"a":' * (N // 5),
    "hashes": "#" * N,
    "stars": "*" * N,
    "open thoughts": "<think>" * (N // 7),
    "a field of brackets": MARKER + "[" * N,
    "a field of blanks": MARKER + " " * N + "x",
    "a field of objects": MARKER + '{"a":' * (N // 5),
    "a field of quotes": MARKER + '["' + '"' * N,
    "a field of commas": MARKER + "," * N,
    "a field of parentheses": MARKER + "(" * N,
    "letters": "a " * (N // 2),
    "boxes": "\\boxed{" * (N // 7),
    "headings": "facts: \n" * (N // 8),
    "open tags": "<facts>" * (N // 7),
    "a tag and brackets": "<facts " + "<" * N,
    "elements": "<facts>" + "<item>" * N,
    "closed elements": "<facts>" + "<item>" * N + "</item>" * N + "</facts>",
    "signs": MARKER + "#" + "~" * N,
    "marks of signs": MARKER + "#~" * N,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("layout", ["headers", "json"])
@pytest.mark.parametrize("signature", [UpdateFacts, ChooseFromContext], ids=lambda each: each.__name__)
def test_hostile_answers_are_read_or_refused_at_once(signature: type, layout: Layout, name: str) -> None:
    text = HOSTILE[name] if signature is UpdateFacts else HOSTILE[name].replace("facts", "answer")
    started = time.perf_counter()
    with contextlib.suppress(UnreadableError):
        read_answer(signature, text, {"options": ["(a) x", "(b) y"], "dialogue": "[D1:1] Ann: x"}, layout=layout)
    # Patterns whose time grows with the square of the length took minutes for these.
    assert time.perf_counter() - started < 10
