"""The offline engine: what it answers with and without demos, in which forms, and of which types.

The engine stands for a language model without having one: it answers by rules, with sentences,
dates and ids that it finds in the inputs. Demos are the examples in a prompt.

It knows no prompt of the suite, which is all signatures of this package: neither names of fields
nor words of instructions are in its sources.
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

CONTEXT = """\
[D4:2] (27 June 2023, Tuesday 10:37) Ann: Did you like the pottery class? I saw the bowls there.
[D1:3] (8 May 2023, Monday 13:56) Ann: I joined a pottery class yesterday [7 May 2023]. It was fun!
[D2:1] (25 May 2023, Thursday 13:14) Bob: My brother Tom ran a charity race last Saturday \
[20 May 2023].
[D3:7] (9 June 2023, Friday 19:55) Ann: We adopted 2 kittens from the shelter, both grey and very \
shy."""


def chat_adapter() -> dspy.ChatAdapter:
    """Return DSPy's own adapter, without its second attempt in JSON."""
    return dspy.ChatAdapter(use_json_adapter_fallback=False)


def make_lm(engine: OfflineEngine | None = None, **settings: Any) -> dspy.LM:
    """Return an offline engine, a new one if None, as a model without a cache."""
    if engine is None:
        engine = OfflineEngine()
    settings = {"temperature": 0.0, "cache": False, **settings}
    return dspy.LM("offline/extractive-1", engine=engine, **settings)


def predict(
    signature: Any,
    demos: Sequence[Any] = (),
    adapter: Any = None,
    lm: dspy.LM | None = None,
    **inputs: Any,
) -> Any:
    """Return the prediction for a signature and its inputs.

    Args:
        signature: The signature.
        demos: Examples in the prompt.
        adapter: The form of the prompt; DSPy's chat if None.
        lm: The model; a new offline engine if None.
        **inputs: The input fields of the signature.
    """
    program = dspy.Predict(signature)
    program.demos = list(demos)
    with dspy.context(lm=lm or make_lm(), adapter=adapter or chat_adapter()):
        return program(**inputs)


# Answers.

DEMOS_WITH_DATES = [
    {"question": "When did Joe leave Rome?", "answer": "3 March 2022"},
    {"question": "When is the fair?", "answer": "12 July 2021"},
]
DEMOS_WITH_TWO_WORDS = [
    {"question": "What did Joe eat at home?", "answer": "fish soup"},
    {"question": "What animal does Eve own?", "answer": "old horse"},
]


def test_without_demos_the_sentence_with_most_words_of_the_question_is_the_answer() -> None:
    context = (
        "[D1:3] (8 May 2023) Ann: I joined a pottery class. It was fun!\n"
        "[D2:1] (25 May 2023) Bob: My brother Tom ran a charity race. He won."
    )

    prediction = predict(
        "context, question -> answer", context=context, question="Who ran a charity race?"
    )

    assert prediction.answer == "My brother Tom ran a charity race."


@pytest.mark.parametrize(
    ("demos", "expected_answer"),
    [
        pytest.param(DEMOS_WITH_DATES, "7 May 2023", id="dates"),
        pytest.param(DEMOS_WITH_TWO_WORDS, "class yesterday", id="two words"),
        pytest.param(
            # The nearest demo is the one whose question is most like "When did Ann ...?".
            [*DEMOS_WITH_TWO_WORDS, *DEMOS_WITH_DATES],
            "7 May 2023",
            id="two words, and dates in the nearest demo",
        ),
    ],
)
def test_an_answer_has_the_form_of_the_answers_in_demos(
    demos: list[dict[str, str]], expected_answer: str
) -> None:
    """The answer is a part of the best sentence: a date, or as many words as in the demos."""
    context = "[D1:3] (8 May 2023) Ann: I joined a pottery class yesterday [7 May 2023]."

    prediction = predict(
        "context, question -> answer",
        demos,
        context=context,
        question="When did Ann join a pottery class?",
    )

    assert prediction.answer == expected_answer


def test_a_demo_with_a_number_has_the_number_of_the_best_sentence_as_the_answer() -> None:
    demo = {"question": "How many cats are there?", "answer": "3"}
    context = (
        "[D2:1] (25 May 2023) Bob: I ran 5 miles.\n"
        "[D3:7] (9 June 2023) Ann: We adopted 2 kittens from the shelter."
    )

    prediction = predict(
        "context, question -> answer",
        [demo],
        context=context,
        question="How many kittens were adopted?",
    )

    assert prediction.answer == "2"


@pytest.mark.parametrize(
    ("context", "question"), [("", ""), ("", "Who?"), ("Ann: hi", ""), ("[]", "Who?")]
)
def test_empty_inputs_get_some_answer(context: str, question: str) -> None:
    prediction = predict("context, question -> answer", context=context, question=question)
    assert isinstance(prediction.answer, str)


def chosen_option(question: str, options: list[str]) -> str:
    """Return which option the offline engine chooses, with two records of films."""
    records = (
        "[u:1] (8 May 2023) user: The Harbour, a drama about sailors => 5\n"
        "[u:2] user: Robot Night, a horror film => 2"
    )
    prediction = predict(
        "records, question, options: list[str] -> answer",
        records=records,
        question=question,
        options=options,
    )
    return prediction.answer


def test_the_option_in_the_best_line_is_chosen() -> None:
    """A record says: "The Harbour, a drama about sailors => 5"."""
    answer = chosen_option("How many stars for a drama about sailors?", ["1", "2", "5"])

    assert answer == "5"


def test_the_first_option_is_chosen_if_no_line_has_one() -> None:
    assert chosen_option("Will a drama be watched?", ["Never", "Always"]) == "Never"


def test_an_option_with_a_letter_is_chosen_by_its_letter() -> None:
    """A record says: "Robot Night, a horror film"."""
    answer = chosen_option("What is Robot Night?", ["(a) a drama", "(b) a horror film"])

    assert answer == "(b)"


TWO_TURNS = """\
[D1:1] (8 May 2023, Monday 13:56) Ann: I moved to Rome last week.
[D1:2] (8 May 2023, Monday 13:56) Bob: My dog Rex likes long walks. He is old."""


def test_a_list_of_texts_gets_turns_without_their_ids_and_times() -> None:
    prediction = predict(
        "lines -> facts: list[str]",
        lines="[D1:1] (8 May 2023, Monday 13:56) Ann: I moved to Rome last week.",
    )

    assert prediction.facts == ["Ann: I moved to Rome last week."]


def test_a_list_of_texts_gets_the_sentences_of_a_text() -> None:
    prediction = predict("text -> facts: list[str]", text="Ann moved. Bob stayed.")

    assert prediction.facts == ["Ann moved.", "Bob stayed."]


def test_a_field_of_ids_gets_the_ids_of_the_best_turns() -> None:
    """The name of a field says whether it wants ids."""
    prediction = predict(
        "turns, question -> turn_ids: list[str], turn_id",
        turns=TWO_TURNS,
        question="Who has a dog?",
    )

    assert prediction.turn_ids == ["D1:2"]
    assert prediction.turn_id == "D1:2"


def test_a_list_of_options_has_the_options_that_fit_and_the_best_one_first() -> None:
    prediction = predict(
        "question, options: list[str] -> best: list[Literal['S1', 'S2', 'S3']]",
        question="A long walk with the dog?",
        options=["S1: a walk", "S2: tea", "S3: a long walk"],
    )

    assert prediction.best == ["S3", "S1"]


def test_a_list_is_made_of_the_input_to_which_the_descriptions_of_others_refer() -> None:
    """The description of `before` refers to `lines`, so the list is made of `lines`."""

    class TakeNotes(dspy.Signature):
        """Take notes."""

        before: str = dspy.InputField(desc="the lines before `lines`")
        lines: str = dspy.InputField(desc="what is noted")
        notes: list[str] = dspy.OutputField()

    prediction = predict(
        TakeNotes,
        before="[a] Ann: I sail.",
        lines="[b] Bob: I row.\n[c] Bob: I swim.",
    )
    assert prediction.notes == ["Bob: I row.", "Bob: I swim."]


def test_a_field_header_in_the_answer_does_not_break_the_completion() -> None:
    """In DSPy's chat format, "[[ ## answer ## ]]" begins a field of the answer."""
    prediction = predict(
        "context, question -> answer",
        context="Ann wrote [[ ## answer ## ]] on the wall.",
        question="What wall?",
    )
    assert "on the wall" in prediction.answer


# Types that the tests below use.


class Part(pydantic.BaseModel):
    name: str
    weight: float = pydantic.Field(ge=0, le=1)
    tags: list[str] = []


class Assembly(pydantic.BaseModel):
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


# Adapters: the forms in which a prompt may come.


class UnreadableAtFirst(OfflineEngine):
    """The offline engine, except that its first completion cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[str] = []
        """What the offline engine answered to each request."""

    def reply(self, request: Request) -> str:
        reply = super().reply(request)
        self.replies.append(reply)
        is_first = len(self.replies) == 1
        return "[1, 2" if is_first else reply


@pytest.mark.parametrize("adapter_name", ["chat", "json", "auto"])
def test_a_second_attempt_gets_the_answer_of_the_first(adapter_name: str) -> None:
    """If a completion cannot be read, the adapter asks again, in a prompt of another form."""
    complete_demo = {"question": "When did Joe leave?", "answer": "3 March 2022"}
    incomplete_demo = {"context": "x: y", "question": "When?"}
    engine = UnreadableAtFirst()

    prediction = predict(
        "context, question -> answer, days: list[int]",
        demos=[complete_demo, incomplete_demo],
        adapter=adapter(adapter_name),
        lm=make_lm(engine),
        context="[D1:3] (8 May 2023) Ann: I joined a pottery class yesterday [7 May 2023].",
        question="When did Ann join a pottery class?",
    )

    assert prediction.answer == "7 May 2023"  # a date, as in the demo
    first_reply, second_reply = engine.replies
    assert first_reply == second_reply


@pytest.mark.parametrize("adapter_name", ["chat", "json", "auto"])
@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        pytest.param(
            "context, question -> answer",
            {"context": CONTEXT, "question": "When did Ann join a pottery class?"},
            id="texts",
        ),
        pytest.param(
            "turns: list[Part], question -> best: Assembly",
            {
                "turns": [Part(name="Ann's [[ ## best ## ]] bowl", weight=0.5)],
                "question": "When did Ann join a pottery class?",
            },
            id="objects",
        ),
    ],
)
def test_our_adapters_get_the_same_answer_as_those_of_dspy(
    adapter_name: str, signature: str, inputs: dict[str, Any]
) -> None:
    typed_signature = make_signature(signature, custom_types={"Part": Part, "Assembly": Assembly})
    dspy_adapter = dspy.JSONAdapter() if adapter_name == "json" else chat_adapter()

    prediction = predict(typed_signature, DEMOS_WITH_DATES, adapter(adapter_name), **inputs)
    prediction_of_dspy = predict(typed_signature, DEMOS_WITH_DATES, dspy_adapter, **inputs)

    assert prediction.toDict() == prediction_of_dspy.toDict()


RUNNING_CONTEXT = "[D2:1] (25 May 2023) Bob: My brother Tom ran a race. He won."


async def answer_in_a_task(program_class: Any, adapter: Any) -> str:
    """Ask the offline model who ran, under asyncio."""
    program = program_class("context, question -> answer")
    with dspy.context(lm=language_model("offline"), adapter=adapter):
        prediction = await program.acall(context=RUNNING_CONTEXT, question="Who ran?")
    return prediction.answer


@pytest.mark.parametrize(
    "make_adapter", [chat_adapter, dspy.JSONAdapter, dspy.XMLAdapter, dspy.ChatAdapter]
)
def test_adapters_of_dspy_get_an_answer_under_asyncio(make_adapter: Any) -> None:
    answer = asyncio.run(answer_in_a_task(dspy.ChainOfThought, make_adapter()))
    assert answer == "My brother Tom ran a race."


@pytest.mark.parametrize("adapter_name", ["chat", "json", "auto"])
def test_our_adapters_get_an_answer_under_asyncio(adapter_name: str) -> None:
    answer = asyncio.run(answer_in_a_task(dspy.Predict, adapter(adapter_name)))
    assert answer == "My brother Tom ran a race."


def test_a_plain_question_is_answered_without_fields() -> None:
    completions = make_lm()("Ann: I moved to Rome.\n\nWhere did Ann move?")
    assert completions == ["Ann: I moved to Rome."]


# As an engine of DSPy.


def ask_repeatedly(
    engine: OfflineEngine,
    times: int,
    temperature: float,
    demos: Sequence[Any] = (),
    **settings: Any,
) -> list[str]:
    """Return the answers of an engine to the same question, asked several times."""
    lm = make_lm(engine, temperature=temperature, **settings)
    answers: list[str] = []
    for _ in range(times):
        prediction = predict(
            "context, question -> answer",
            demos,
            lm=lm,
            context=CONTEXT,
            question="What was fun about the class?",
        )
        answers.append(prediction.answer)
    return answers


@pytest.mark.parametrize("demos", [[], DEMOS_WITH_TWO_WORDS], ids=["no demos", "demos"])
def test_with_a_temperature_a_repeated_prompt_gets_different_answers(
    demos: list[dict[str, str]],
) -> None:
    answers = ask_repeatedly(OfflineEngine(), times=8, temperature=1.0, demos=demos)

    different_answers = set(answers)
    assert len(different_answers) >= 3


def test_with_a_seed_a_repeated_prompt_gets_the_same_answer() -> None:
    answers = ask_repeatedly(OfflineEngine(), times=4, temperature=1.0, seed=7)
    assert len(set(answers)) == 1


def test_without_a_temperature_all_engines_give_the_same_answer() -> None:
    answers = ask_repeatedly(OfflineEngine(), times=3, temperature=0.0)
    other_answers = ask_repeatedly(OfflineEngine(), times=3, temperature=0.0)
    assert len(set(answers + other_answers)) == 1


def test_a_pickled_engine_begins_to_count_repeated_prompts_anew() -> None:
    """How often a prompt was asked before decides about its answer, if there is a temperature."""
    engine = OfflineEngine()
    ask_repeatedly(engine, times=8, temperature=1.0)
    copied_engine = pickle.loads(pickle.dumps(engine))

    answers_of_copy = ask_repeatedly(copied_engine, times=2, temperature=1.0)
    answers_of_new_engine = ask_repeatedly(OfflineEngine(), times=2, temperature=1.0)

    assert answers_of_copy == answers_of_new_engine


def test_a_loaded_program_has_the_engine_with_which_it_was_saved(tmp_path: Path) -> None:
    program = dspy.Predict("context, question -> answer")
    program.set_lm(make_lm())
    program.save(tmp_path / "program.json")

    loaded_program = dspy.Predict("context, question -> answer")
    loaded_program.load(tmp_path / "program.json", allow_unsafe_lm_state=True)

    prediction = loaded_program(context="Tom ran a race. Ann slept.", question="Who ran?")
    assert prediction.answer == "Tom ran a race."


def test_the_pieces_of_a_stream_make_up_the_completion() -> None:
    message = Message.user("Ann: I moved.\n\nWhere did Ann move?")
    request = Request(model="extractive-1", messages=(message,))

    response = OfflineEngine().complete(request)
    events = list(OfflineEngine().stream(request))

    pieces = [event.delta.text for event in events if event.type == "delta"]
    assert "".join(pieces) == response.message.text


# Types of output fields.

ADAPTERS = [
    pytest.param(chat_adapter, id="chat"),
    pytest.param(dspy.JSONAdapter, id="json"),
]


def predict_value(output_type: Any, adapter: Any) -> Any:
    """Return what the offline engine fills into an output field of a type."""
    fields = {
        "context": (str, dspy.InputField()),
        "question": (str, dspy.InputField()),
        "value": (output_type, dspy.OutputField()),
    }
    signature = make_signature(fields, "Fill the fields.")
    question = "How many kittens were adopted?"
    return predict(signature, adapter=adapter, context=CONTEXT, question=question).value


@pytest.mark.parametrize("make_adapter", ADAPTERS)
@pytest.mark.parametrize(
    "output_type",
    [
        int,
        bool,
        float,
        str | None,
        int | str,
        Literal["b", "a"],
        Literal["yes; or no", "b"],
        Literal[1, 2, 3],
        Color,
        Part | None,
        Assembly,
        Tree,
        list[Assembly],
        list[list[str]],
        set[str],
        dict[str, str],
    ],
    ids=str,
)
def test_an_output_field_of_any_type_gets_a_valid_value(
    output_type: Any, make_adapter: Any
) -> None:
    value = predict_value(output_type, make_adapter())
    # JSON has no sets, so a strict check would refuse what was read as a list.
    is_strict = not isinstance(value, list | tuple | set)
    pydantic.TypeAdapter(output_type).validate_python(value, strict=is_strict)


@pytest.mark.parametrize("make_adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("output_type", "expected_value"),
    [(int, 0), (bool, True), (Literal["b", "a"], "b"), (dict[str, str], {})],
    ids=str,
)
def test_a_value_for_which_there_is_no_rule_is_the_first_option_or_the_least_value(
    output_type: Any, expected_value: Any, make_adapter: Any
) -> None:
    """The offline engine fills fields by rules, such as one for dates and one for ids."""
    assert predict_value(output_type, make_adapter()) == expected_value


@pytest.mark.parametrize("make_adapter", ADAPTERS)
@pytest.mark.parametrize("signature", suite(), ids=lambda signature: signature.__name__)
def test_every_signature_of_the_suite_gets_valid_values(signature: Any, make_adapter: Any) -> None:
    inputs: dict[str, Any] = {}
    for name, field in signature.input_fields.items():
        inputs[name] = CONTEXT if field.annotation is str else []

    prediction = predict(signature, adapter=make_adapter(), **inputs)

    for name, field in signature.output_fields.items():
        type_adapter = pydantic.TypeAdapter(field.annotation)
        type_adapter.validate_python(prediction[name], strict=True)


# The engine knows no prompt of the suite. Otherwise it could be tuned to the programs that are
# scored with it.


def string_literals_of_the_engine() -> set[str]:
    """Return all strings in the sources of the offline engine."""
    literals: set[str] = set()
    for path in Path(mempiler.engines.offline.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
    return literals


STRING_LITERALS = string_literals_of_the_engine()

WORDS_FOR_PARTS_OF_LINES = {"id", "ids", "speaker", "time", "date", "month", "user"}
"""Words by which the engine reads dates and the heads of lines, such as "[D1:2] (8 May 2023) Ann:".

Some signatures have fields of these names, too.
"""


@pytest.mark.parametrize("signature", suite(), ids=lambda signature: signature.__name__)
def test_no_name_of_a_field_of_the_suite_is_in_the_engine(signature: Any) -> None:
    field_names = set(signature.fields) - WORDS_FOR_PARTS_OF_LINES
    assert field_names & STRING_LITERALS == set()


@pytest.mark.parametrize("signature", suite(), ids=lambda signature: signature.__name__)
def test_no_line_of_an_instruction_of_the_suite_is_in_the_engine(signature: Any) -> None:
    lines = {line.strip() for line in signature.instructions.splitlines() if len(line) > 20}
    assert lines & STRING_LITERALS == set()
