"""Parts: the constructor arguments that are taken down as settings, copies, and calls that cannot be read."""

import copy
from typing import Any

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.errors import UserError
from mempiler.memory.indexes import Indexes
from mempiler.programs.predictor import Part, predictor
from mempiler.programs.recording import recording
from mempiler.signatures.answering import AnswerFromContext


class Shouting(Part):
    def __init__(self, loud: bool = True, words: Any = "hey", *, times: int = 1) -> None:
        super().__init__()
        self.loud = loud


class Searching(Part):
    def __init__(self, embedder: Any = None, indexes: Indexes | None = None, inner: Any = None, k: int = 3) -> None:
        super().__init__()


class Bare(Part):
    pass


def test_settings_are_taken_down_without_what_a_part_is_made_of() -> None:
    assert Shouting().config == {"loud": True, "words": "hey", "times": 1}
    words = ["a", {"b": None}]
    assert Shouting(False, words, times=2).config == {"loud": False, "words": words, "times": 2}
    part = Searching(embedder(), Indexes(), Shouting(), k=7)
    part.embedder = embedder()  # pyright: ignore[reportAttributeAccessIssue]
    twin = copy.deepcopy(part)
    assert twin.config == part.config == {"k": 7}
    assert twin.embedder is part.embedder  # pyright: ignore[reportAttributeAccessIssue]


def test_every_setting_is_named_and_can_be_saved() -> None:
    with pytest.raises(UserError, match=r"^Shouting: the setting words = .* cannot be saved; use numbers, texts"):
        Shouting(words=object())
    with pytest.raises(UserError, match=r"^Loose: the constructor takes \*more; name every setting$"):
        type("Loose", (Part,), {"__init__": lambda self, **more: None})


class Asking(Part):
    def __init__(self) -> None:
        super().__init__()
        self.one = predictor(AnswerFromContext)
        self.inner = Bare()
        self.inner.two = dspy.ChainOfThought(AnswerFromContext)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("name", "where"), [("one", "one"), ("two", "inner.two")])
def test_output_that_cannot_be_read_is_a_failure_of_its_predictor(scripted: Any, name: str, where: str) -> None:
    part = Asking()
    asked: Any = part.one if name == "one" else part.inner.two  # pyright: ignore[reportAttributeAccessIssue]
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    with dspy.context(lm=scripted(lambda *_: "junk"), adapter=adapter), recording() as record:
        assert part.attempt(asked, context="", question="Who?") is None
    assert [(failure.kind, failure.where) for failure in record.failures] == [("parse", where)]
    assert "\n" not in record.failures[0].message
