"""The offline engine: what it says without demos, what demos change, lists, prompts, types, and as an engine.

It knows no prompt of the suite: neither names of fields nor words of instructions are in its sources.
"""

from __future__ import annotations

import ast
import asyncio
import enum
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Optional

import dspy
import mempiler.engines.offline
import pydantic
import pytest
from dspy.lm15 import Message, Request
from mempiler.engines.lm import language_model
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.programs.adapter import adapter

from tests.conftest import suite

make_signature: Any = dspy.Signature
"""Typed loosely: its metaclass takes arguments that type checkers do not see."""


def chat() -> Any:
    """DSPy's own adapter, without a second attempt in JSON."""
    return dspy.ChatAdapter(use_json_adapter_fallback=False)


def make_lm(engine: OfflineEngine | None = None, **settings: Any) -> dspy.LM:
    """The engine as a model that remembers nothing."""
    given = {"engine": engine or OfflineEngine(), "temperature": 0.0, "cache": False, **settings}
    return dspy.LM("offline/extractive-1", **given)


def predict(
    signature: Any, demos: Sequence[Any] = (), adapter: Any = None, lm: Any = None, **inputs: Any
) -> Any:
    """Fills a signature, by the chat adapter unless another is given."""
    program = dspy.Predict(signature)
    program.demos = list(demos)
    with dspy.context(lm=lm or make_lm(), adapter=adapter or chat()):
        return program(**inputs)


CONTEXT = "\n".join(
    [
        "[D4:2] (27 June 2023, Tuesday 10:37) Ann: Did you like the pottery class? I saw the bowls there.",
        "[D1:3] (8 May 2023, Monday 13:56) Ann: I joined a pottery class yesterday [7 May 2023]. It was fun!",
        "[D2:1] (25 May 2023, Thursday 13:14) Bob: My brother Tom ran a charity race last Saturday [20 May 2023].",
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


def ask(question: str, demos: Sequence[Any] = (), context: str = CONTEXT) -> str:
    return predict("context, question -> answer", demos, context=context, question=question).answer


JOIN = "When did Ann join a pottery class?"


@pytest.mark.parametrize(
    ("question", "demos", "answer"),
    [
        ("Who ran a charity race?", [], "My brother Tom ran a charity race last Saturday"),
        (JOIN, WHEN_DEMOS, "7 May 2023"),
        (JOIN, WHAT_DEMOS, "class yesterday"),
        (JOIN, [*WHAT_DEMOS, *WHEN_DEMOS], "7 May 2023"),
        ("When did Tom run a charity race?", WHEN_DEMOS, "20 May 2023"),
        (
            "How many kittens were adopted?",
            [{"question": "How many cats are there?", "answer": "3"}],
            "2",
        ),
    ],
)
def test_the_best_sentence_answers_and_the_nearest_demo_decides_kind_and_length(
    question: str, demos: Any, answer: str
) -> None:
    assert ask(question, demos) == answer


@pytest.mark.parametrize(
    ("context", "question"), [("", ""), ("", "Who?"), ("Ann: hi", ""), ("[]", "Who?")]
)
def test_empty_inputs_are_answered(context: str, question: str) -> None:
    assert isinstance(ask(question, context=context), str)


@pytest.mark.parametrize(
    ("question", "options", "answer"),
    [
        ("How many stars for a drama about sailors?", ["1", "2", "5"], "5"),
        ("Will a drama be watched?", ["Never", "Always"], "Never"),
        ("What is Robot Night?", ["(a) a drama", "(b) a horror film"], "(b)"),
    ],
    ids=["the best unit has it", "none: the first", "letters"],
)
def test_one_word_or_letter_of_a_list_is_chosen(question: str, options: Any, answer: str) -> None:
    rated = "[u:1] (8 May 2023) user: The Harbour, a drama about sailors => 5\n[u:2] user: Robot Night, a horror film => 2"
    signature = "records, question, options: list[str] -> answer"
    assert predict(signature, records=rated, question=question, options=options).answer == answer


TOLD = (
    "[D1:1] (8 May 2023, Monday 13:56) Ann: I moved to Rome last week.\n"
    "[D1:2] (8 May 2023, Monday 13:56) Bob: My dog Rex likes long walks. He is old."
)


@pytest.mark.parametrize(
    ("signature", "inputs", "expected"),
    [
        (
            "lines -> facts: list[str]",
            {"lines": TOLD.splitlines()[0]},
            ["Ann: I moved to Rome last week."],
        ),
        (
            "text -> facts: list[str]",
            {"text": "Ann moved. Bob stayed."},
            ["Ann moved.", "Bob stayed."],
        ),
        ("question -> queries: list[str]", {"question": "Where is Ann?"}, ["Where is Ann?"]),
        ("facts: list[str] -> kept: list[str]", {"facts": []}, []),
        (
            "turns, question -> turn_ids: list[str]",
            {"turns": TOLD, "question": "Who has a dog?"},
            ["D1:2"],
        ),
        ("turns, question -> turn_id", {"turns": TOLD, "question": "Who has a dog?"}, "D1:2"),
        (
            "question, options: list[str] -> best: list[Literal['S1', 'S2', 'S3']]",
            {
                "question": "A long walk with the dog?",
                "options": ["S1: a walk", "S2: tea", "S3: a long walk"],
            },
            ["S3", "S1"],
        ),
    ],
)
def test_lists_of_text_and_ids(signature: str, inputs: dict[str, Any], expected: Any) -> None:
    assert next(iter(predict(signature, **inputs).values())) == expected


def test_a_list_is_made_of_the_input_that_the_others_help_to_understand() -> None:
    class Notes(dspy.Signature):
        """Take notes."""

        before: str = dspy.InputField(desc="the lines before `lines`")
        lines: str = dspy.InputField(desc="what is noted")
        notes: list[str] = dspy.OutputField()

    before, lines = "[a] Ann: I sail.", "[b] Bob: I row.\n[c] Bob: I swim."
    assert predict(Notes, before=before, lines=lines).notes == ["Bob: I row.", "Bob: I swim."]


class FirstUnreadable(OfflineEngine):
    """The offline engine, whose first answer has no fields; `replies` are its answers to the others."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[str] = []

    def reply(self, request: Request) -> str:
        self.replies.append(super().reply(request))
        if len(self.replies) == 1:
            return "[1, 2"
        return self.replies[-1]


@pytest.mark.parametrize("name", ["chat", "json", "auto"])
def test_a_retry_is_answered_like_the_request(name: str) -> None:
    demos = [
        {"question": "When did Joe leave?", "answer": "3 March 2022"},
        {"context": "x: y", "question": "When?"},
    ]
    engine = FirstUnreadable()
    signature = "context, question -> answer, days: list[int]"
    found = predict(
        signature, demos, adapter(name), make_lm(engine), context=CONTEXT, question=JOIN
    )
    assert found.answer == "7 May 2023"
    assert engine.replies[0] == engine.replies[1]


@pytest.mark.parametrize("name", ["chat", "json", "auto"])
@pytest.mark.parametrize(
    "signature", ["context, question -> answer", "turns: list[Part], question -> best: Whole"]
)
def test_our_adapters_and_those_of_dspy_get_the_same_answer(name: str, signature: str) -> None:
    inputs = {
        "context": CONTEXT,
        "turns": [Part(name="Ann's [[ ## best ## ]] bowl", weight=0.5)],
        "question": JOIN,
    }
    made = make_signature(signature, custom_types={"Part": Part, "Whole": Whole})
    inputs = {name: value for name, value in inputs.items() if name in made.input_fields}
    ours = predict(made, WHEN_DEMOS, adapter(name), **inputs)
    theirs = predict(made, WHEN_DEMOS, dspy.JSONAdapter() if name == "json" else chat(), **inputs)
    assert ours.toDict() == theirs.toDict()


@pytest.mark.parametrize("adapter", [chat, dspy.JSONAdapter, dspy.XMLAdapter, dspy.ChatAdapter])
def test_the_adapters_of_dspy_are_answered_in_a_task_too(adapter: Any) -> None:
    async def ask() -> Any:
        with dspy.context(lm=language_model("offline"), adapter=adapter()):
            return await dspy.ChainOfThought("context, question -> answer").acall(
                context=CONTEXT, question="Who ran?"
            )

    assert asyncio.run(ask()).answer == "My brother Tom ran a charity race last Saturday"


@pytest.mark.parametrize("name", ["chat", "json", "auto"])
def test_our_adapters_are_answered_in_a_task_too(name: str) -> None:
    async def ask() -> Any:
        with dspy.context(lm=language_model("offline"), adapter=adapter(name)):
            return await dspy.Predict("context, question -> answer").acall(
                context=CONTEXT, question="Who ran?"
            )

    assert asyncio.run(ask()).answer == "My brother Tom ran a charity race last Saturday"


def test_a_plain_text_is_answered_without_fields() -> None:
    assert make_lm()("Ann: I moved to Rome.\n\nWhere did Ann move?") == ["Ann: I moved to Rome."]


class Joined(dspy.Predict):
    """Asks a plain question after the call of its predictor."""

    def forward(self, **inputs: Any) -> Any:
        return dspy.Prediction(
            first=super().forward(**inputs), text=dspy.settings.lm("Ann: I moved to Rome.")
        )


def test_a_plain_text_that_a_predictor_asks_is_answered_without_fields() -> None:
    with dspy.context(lm=make_lm(), adapter=adapter()):
        said = Joined("context, question -> answer")(context=CONTEXT, question="Who ran?")
    assert said.text == ["I moved to Rome."]


def test_a_header_in_the_answer_does_not_break_the_reply() -> None:
    text = "Ann wrote [[ ## answer ## ]] on the wall."
    assert (
        "on the wall"
        in predict("context, question -> answer", context=text, question="What wall?").answer
    )


def answers(
    engine: OfflineEngine, temperature: float, times: int, demos: Sequence[Any] = (), **more: Any
) -> list[str]:
    lm, signature = make_lm(engine, temperature=temperature, **more), "context, question -> answer"
    inputs: Any = {"context": CONTEXT, "question": "What was fun about the class?"}
    return [predict(signature, demos, lm=lm, **inputs).answer for _ in range(times)]


def test_only_with_a_temperature_and_without_a_seed_do_repeated_prompts_differ() -> None:
    engine = OfflineEngine()
    assert all(len(set(answers(engine, 1.0, 8, demos))) >= 3 for demos in ([], WHAT_DEMOS))
    assert len(set(answers(engine, 1.0, 4, seed=7))) == 1
    assert len({*answers(engine, 0.0, 3), *answers(OfflineEngine(), 0.0, 3)}) == 1
    assert answers(pickle.loads(pickle.dumps(engine)), 1.0, 2) == answers(OfflineEngine(), 1.0, 2)


def test_a_saved_program_brings_its_engine_back(tmp_path: Path) -> None:
    predict = dspy.Predict("context, question -> answer")
    predict.set_lm(make_lm())
    predict.save(tmp_path / "program.json")
    loaded = dspy.Predict("context, question -> answer")
    loaded.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
    assert (
        loaded(context=CONTEXT, question="Who ran?").answer
        == "My brother Tom ran a charity race last Saturday"
    )


def test_a_stream_adds_up_to_the_response() -> None:
    asked = Request(
        model="extractive-1", messages=(Message.user("Ann: I moved.\n\nWhere did Ann move?"),)
    )
    events, whole = list(OfflineEngine().stream(asked)), OfflineEngine().complete(asked)
    assert (
        "".join(event.delta.text for event in events if event.type == "delta") == whole.message.text
    )


# Every output type is filled with a valid value


class Part(pydantic.BaseModel):
    name: str
    weight: float = pydantic.Field(ge=0, le=1)
    tags: list[str] = []


class Whole(pydantic.BaseModel):
    kind: Literal["small", "large"]
    count: int = pydantic.Field(ge=1, le=5)
    parts: list[Part]
    first: Part
    note: Optional[str] = None  # noqa: UP045 - both spellings of an optional type must be read


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Tree(pydantic.BaseModel):
    label: str
    children: list[Tree] = []


ANY: Any = Ellipsis
KINDS: list[tuple[Any, Any]] = [
    # What has no rule is the first option, or the least value.
    *((int, 0), (bool, True), (Literal["b", "a"], "b"), (dict[str, str], {})),
    *(
        (kind, ANY)
        for kind in (float, str | None, int | str, Literal["yes; or no", "b"], Literal[1, 2, 3])
    ),
    *(
        (kind, ANY)
        for kind in (Color, Whole, Tree, Part | None, list[Whole], set[str], list[list[str]])
    ),
]


@pytest.mark.parametrize("adapter", [chat, dspy.JSONAdapter], ids=["chat", "json"])
@pytest.mark.parametrize(("kind", "value"), KINDS, ids=str)
def test_an_output_field_of_any_type_gets_a_valid_value(
    kind: Any, value: Any, adapter: Any
) -> None:
    inputs = {"context": (str, dspy.InputField()), "question": (str, dspy.InputField())}
    signature = make_signature({**inputs, "value": (kind, dspy.OutputField())}, "Fill the fields.")
    found = predict(
        signature, adapter=adapter(), context=CONTEXT, question="How many kittens were adopted?"
    ).value
    pydantic.TypeAdapter(kind).validate_python(
        found, strict=not isinstance(found, (list, tuple, set))
    )
    if value is not ANY:
        assert found == value


@pytest.mark.parametrize("adapter", [chat, dspy.JSONAdapter], ids=["chat", "json"])
@pytest.mark.parametrize("signature", suite(), ids=lambda signature: signature.__name__)
def test_every_signature_of_the_suite_gets_what_its_schema_accepts(
    signature: Any, adapter: Any
) -> None:
    inputs = {
        name: CONTEXT if each.annotation is str else []
        for name, each in signature.input_fields.items()
    }
    found = predict(signature, adapter=adapter(), **inputs)
    for name, field in signature.output_fields.items():
        pydantic.TypeAdapter(field.annotation).validate_python(found[name], strict=True)


SOURCES = [
    ast.parse(path.read_text(encoding="utf-8"))
    for path in Path(mempiler.engines.offline.__path__[0]).glob("*.py")
]
ROLES = {"id", "ids", "speaker", "time", "date", "month", "user"}
"""The words for the parts of a line and of a date, which it reads heads by; `user` is the role of a message, too."""


@pytest.mark.parametrize("signature", suite(), ids=lambda signature: signature.__name__)
def test_no_name_and_no_wording_of_the_suite_is_in_the_engine(signature: Any) -> None:
    literals = [
        node.value for tree in SOURCES for node in ast.walk(tree) if isinstance(node, ast.Constant)
    ]
    texts = {text for text in literals if isinstance(text, str)}
    assert not (set(signature.fields) - ROLES) & texts
    assert (
        not {line.strip() for line in signature.instructions.splitlines() if len(line) > 20} & texts
    )
