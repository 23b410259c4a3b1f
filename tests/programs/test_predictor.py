"""Predictors: the demos nearest to their inputs, what an optimizer may change of them, and the parts made of them."""

import copy
from typing import Any

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.errors import UserError
from mempiler.memory.indexes import Indexes
from mempiler.programs.catalog import build
from mempiler.programs.predictor import Part, predictor
from mempiler.programs.recording import recording
from mempiler.programs.state import dump_predictor, prompts_text
from mempiler.signatures.answering import AnswerFromContext

POOL = [
    dspy.Example(question="When did Ann move to Lisbon?", answer="May 2023"),
    dspy.Example(question="What instrument does Bob play?", answer="cello"),
    dspy.Example(question="Which dog breed does Cleo own?", answer="whippet"),
    dspy.Example(question="When did Dan move to Oslo?", answer="June 2022"),
]


def test_without_a_model_the_line_says_what_to_pass() -> None:
    with pytest.raises(UserError, match=r"^no language model: pass lm=dspy\.LM"):
        predictor(AnswerFromContext)(context="", question="Where?")


def chosen(question, nearest):
    made = predictor(AnswerFromContext)
    made.demos, made.nearest = POOL, nearest
    return [demo.answer for demo in made.choose({"context": "", "question": question})]


@pytest.mark.parametrize(
    ("question", "nearest", "answers"),
    [
        ("When did Eve move to Rome?", 2, ["May 2023", "June 2022"]),
        ("Which instrument does Eve play?", 1, ["cello"]),
        ("Zzz?", 2, ["May 2023", "cello"]),
        ("anything", 9, ["May 2023", "cello", "whippet", "June 2022"]),
        ("anything", None, ["May 2023", "cello", "whippet", "June 2022"]),
    ],
)
def test_the_nearest_demos_are_shown_in_the_order_of_the_pool(question, nearest, answers):
    assert chosen(question, nearest) == answers


def test_every_predictor_has_its_instructions_fields_and_demos_in_the_text():
    program = build("memory-r2")
    predictor = program.all_predictors()["task.answer"]
    predictor.signature = predictor.signature.with_instructions("Answer.\n```\nas code\n```")
    predictor.demos = [dspy.Example(question="Who?\nWhere?", answer="Ada", augmented=True)]
    states = {name: dump_predictor(each) for name, each in program.all_predictors().items()}
    said = prompts_text(states)
    for name, state in states.items():
        assert f"{name}\n===" in said
        assert state.instructions in said
        assert all(f"{each.kind} {each.name} ({each.type}): {each.desc}" in said for each in state.fields)
    assert "Demo 1 of 1, made by the program\n---" in said
    assert "question: Who?\nWhere?\nanswer: Ada" in said


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
