"""Answers of models are read in any layout and spelling.

Their form is repaired, and the repairs are counted. Missing content is not made up, and bad
elements of lists are left out.

A signature declares the inputs and outputs of a prompt. `read_answer` reads the outputs from what a
model wrote. The signatures below have these outputs:

    UpdateFacts          facts, a list of objects with "info" and "type"
    ReflectOnPractice    tasks, an optional list; proposals, a list
    RespondPersonally    reasoning, an optional text; answer, a text
    AnswerFromContext    answer, a text
    ChooseFromContext    answer, one of the options
    SelectSolutions      analysis, a text; answer, a list of options
"""

from __future__ import annotations

import enum
import json
from typing import Annotated, Any, Literal

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.reading.answer import Answer, read_answer
from mempiler.reading.ids import IdFrom, IdMatcher
from mempiler.reading.layouts import HEADER
from mempiler.reading.markers import escape_markers, unescape_markers
from mempiler.reading.repairs import UnreadableError
from mempiler.reading.values import ValueReader
from mempiler.signatures.answering import AnswerFromContext, ChooseFromContext, RespondPersonally
from mempiler.signatures.h2memory import OutlineTopics
from mempiler.signatures.memory_r2 import ManageMemory
from mempiler.signatures.pal import SelectSolutions
from mempiler.signatures.pgr import ImagineTree, UpdateFacts
from mempiler.signatures.pramem import ReflectOnPractice
from mempiler.signatures.rgmem import SynthesizeEvidence
from pydantic import BaseModel, BeforeValidator

INPUTS_OF_PROMPTS: dict[str, Any] = {
    "dialogue": "[D1:1] Ann: a\n[D1:2] Bob: b",
    "conversation": "[D1:1] Ann: a\n[D1:2] Bob: b",
    "memories": [{"memory_id": "m1"}],
    "new_facts": [{"turn_id": "D1:1"}],
    "practised_record": "[a3] x => y",
    "recent_records": "[a1] x => y\n[a2] x => y",
    "pattern_experiences": [{"experience_id": "pattern-1"}],
}
"""Inputs of the prompts of all signatures below, with the ids that answers may refer to."""


def repair_kinds(answer: Answer) -> list[str]:
    return [repair.kind for repair in answer.repairs]


def read_answer_with_facts(text: str) -> Answer:
    """Read an answer to `UpdateFacts`, whose one output is a list of facts."""
    return read_answer(UpdateFacts, text, INPUTS_OF_PROMPTS)


def read_reflection(text: str) -> Answer:
    """Read an answer to `ReflectOnPractice`, whose outputs are lists of tasks and proposals."""
    return read_answer(ReflectOnPractice, text, INPUTS_OF_PROMPTS)


# Layouts of a whole answer.


@pytest.mark.parametrize(
    "text",
    [
        '[[ ## facts ## ]]\n[{"info": "Ann runs", "type": "Activity"}]\n\n[[ ## completed ## ]]',
        '[[ ## facts ## ]]\n[{"info": "Ann runs", "type": "Activity"}]',
        '【【 ＃＃ facts ＃＃ 】】\n[{"info": "Ann runs", "type": "Activity"}]',
        (
            "<think>[[ ## facts ## ]]\n[]</think>\n"
            '[[ ## facts ## ]]\n[{"info": "Ann runs", "type": "Activity"}]'
        ),
    ],
)
def test_an_answer_with_headers_is_read_without_repairs(text: str) -> None:
    """This is the layout that models are asked for.

    Thoughts before it, or a missing "completed" at its end, count as no repair.
    """
    answer = read_answer_with_facts(text)

    (fact,) = answer.outputs["facts"]
    assert fact.info == "Ann runs"
    assert answer.repairs == []


@pytest.mark.parametrize(
    "text",
    [
        '{"facts": [{"info": "Ann runs", "type": "Activity"}]}',
        '```json\n{"facts": [{"info": "Ann runs", "type": "Activity"}]}\n```',
        'Sure:\n```json\n{"facts": [{"info": "Ann runs", "type": "Activity"}]}\n```\nDone.',
        '[{"info": "Ann runs", "type": "Activity"}]',
        '**Facts:**\n[{"info": "Ann runs", "type": "Activity"}]',
        'facts：[{"info": "Ann runs", "type": "Activity"}]',
    ],
)
def test_an_answer_in_another_layout_is_read_with_a_repair(text: str) -> None:
    """Headers such as [[ ## facts ## ]] were asked for; these answers have none."""
    answer = read_answer_with_facts(text)

    (fact,) = answer.outputs["facts"]
    assert fact.info == "Ann runs"
    assert answer.repairs != []


def test_what_stands_below_a_heading_belongs_to_its_output() -> None:
    """The answer has two outputs, tasks and proposals.

    Headers such as [[ ## tasks ## ]] were asked for, but the model wrote headings in bold type.
    """
    text = (
        '**Tasks:**\n[{"task": "a", "verdict": "right"}]\n\n'
        '**Proposals:**\n[{"action": "remove", "experience_id": "pattern-1"}]'
    )

    outputs = read_reflection(text).outputs

    assert [task.task for task in outputs["tasks"]] == ["a"]
    assert [proposal.action for proposal in outputs["proposals"]] == ["remove"]


def test_bold_type_around_a_heading_and_its_text_is_no_part_of_the_text() -> None:
    outputs = read_answer(AnswerFromContext, "**Answer: green tea**", {}).outputs

    assert outputs["answer"] == "green tea"


def test_json_with_a_comma_too_much_and_words_behind_it_is_not_counted_as_cut() -> None:
    """The repair "cut" marks an answer that ended too early, so that its last element may be wrong.

    Here the list is closed, so all of it can be trusted.
    """
    text = '[{"info": "Ann runs", "type": "Activity",}] That is all.'

    answer = read_answer_with_facts(text)

    (fact,) = answer.outputs["facts"]
    assert fact.info == "Ann runs"
    assert "cut" not in repair_kinds(answer)


def test_thoughts_before_an_answer_are_not_read_as_the_answer() -> None:
    """Some models write their thoughts between tags, with an answer that they give up later."""
    text = "<think>\n[[ ## answer ## ]]\nStay at home.</think>\n[[ ## answer ## ]]\nGo for a walk."

    outputs = read_answer(RespondPersonally, text, {}).outputs

    assert outputs["answer"] == "Go for a walk."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot help with that.",
        "[[ ## facts ## ]]\n",
        "[[ ## fact ## ]]\n[]",
        pytest.param('[{"info": "Ann runs", "type": "Ac', id="cut JSON"),
    ],
)
def test_an_answer_without_a_required_output_is_unreadable(text: str) -> None:
    """The output `facts` was asked for as a list of facts, below the header [[ ## facts ## ]]."""
    with pytest.raises(UnreadableError):
        read_answer_with_facts(text)


def test_an_unreadable_optional_output_gets_its_default_and_is_counted() -> None:
    """The tasks of a reflection are optional; here they are words instead of a list."""
    text = (
        "[[ ## tasks ## ]]\nall fine\n\n"
        '[[ ## proposals ## ]]\n[{"action": "add pattern", "content": "Likes jazz"}]'
    )

    answer = read_reflection(text)

    assert [proposal.content for proposal in answer.outputs["proposals"]] == ["Likes jazz"]
    assert answer.outputs["tasks"] == []
    [repair] = answer.repairs
    assert repair.kind == "field"
    assert repair.path == "tasks"


def test_a_missing_optional_output_gets_its_default_and_is_counted() -> None:
    """The signature has the outputs `reasoning`, which is optional, and `answer`."""
    answer = read_answer(RespondPersonally, "[[ ## answer ## ]]\nGo for a walk.", {})

    assert answer.outputs["reasoning"] == ""
    assert answer.outputs["answer"] == "Go for a walk."
    assert repair_kinds(answer) == ["field"]


# Arbitrary answers.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)


def field_names(signature: type[dspy.Signature]) -> list[str]:
    """Return the names of all outputs, and of the fields of their elements."""
    names = list(signature.output_fields)
    for field in signature.output_fields.values():
        for element_type in getattr(field.annotation, "__args__", ()):
            names.extend(getattr(element_type, "model_fields", ()))
    return names


@st.composite
def answers_to(draw: st.DrawFn, signature: type[dspy.Signature]) -> str:
    """Draw a text or JSON, which often has fields of the signature, in one of the layouts."""
    names = st.sampled_from(field_names(signature))
    elements = st.dictionaries(names, JSON, max_size=4)
    known_fields = st.dictionaries(names, JSON | st.lists(elements, max_size=3), max_size=4)
    value = draw(st.text(max_size=60) | JSON | known_fields)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    output = draw(st.sampled_from(list(signature.output_fields)))
    layouts = [text, f"```json\n{text}\n```", f"[[ ## {output} ## ]]\n{text}"]
    return draw(st.sampled_from(layouts))


@pytest.mark.parametrize(
    "signature",
    [
        UpdateFacts,
        ManageMemory,
        OutlineTopics,
        ReflectOnPractice,
        SynthesizeEvidence,
        ImagineTree,
    ],
    ids=lambda signature: signature.__name__,
)
@settings(max_examples=40)
@given(data=st.data())
def test_an_arbitrary_answer_whole_or_cut_has_all_outputs_or_is_unreadable(
    signature: type[dspy.Signature], data: st.DataObject
) -> None:
    """No other error than UnreadableError may be raised, whatever a model answers.

    A signature declares the outputs of a prompt. The answers are random texts and random JSON, with
    names of outputs in them.
    """
    text = data.draw(answers_to(signature))
    cut_text = text[: data.draw(st.integers(0, len(text)))]

    for part in (text, cut_text):
        try:
            answer = read_answer(signature, part, INPUTS_OF_PROMPTS)
        except UnreadableError:
            continue
        assert answer.outputs.keys() == signature.output_fields.keys()


# Choices among options.


def read_choice(reply: str, options: list[str]) -> str:
    """Return the option that a reply chooses, as its letter in brackets."""
    text = f"[[ ## answer ## ]]\n{reply}"
    return read_answer(ChooseFromContext, text, {"options": options}).outputs["answer"]


@pytest.mark.parametrize("reply", ["A swim", "(b) a swim", "I'd go for (b): a swim.", "B"])
def test_an_option_is_chosen_by_its_letter_or_its_text(reply: str) -> None:
    options = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]

    assert read_choice(reply, options) == "(b)"


@pytest.mark.parametrize(
    "reply",
    [
        "(a) or (b)",
        "(b), not (a)",
        "a or b",
        "none",
        "e",
        "",
        "I cannot tell.",
        "a/b",
    ],
)
def test_a_reply_that_chooses_no_option_or_several_is_unreadable(reply: str) -> None:
    options = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]

    with pytest.raises(UnreadableError, match="chooses none of the 4 options, or several"):
        read_choice(reply, options)


@pytest.mark.parametrize(
    "reply",
    [
        "[2,7]",
        "S2, S7",
        '["S2: solution 2", "s7"]',
        '{"S2": 1, "S7": 1}',
        "- S2\n- S 07",
        '```json\n{"answer": ["S1"]}\n```\nBut:\n```json\n{"answer": ["S2", "S7"]}\n```',
        '["Ｓ2", null, "S7"]',
    ],
)
def test_a_selection_of_options_is_read_in_every_spelling(reply: str) -> None:
    """Each reply selects S2 and S7."""
    options = [f"S{number}: solution {number}" for number in range(1, 9)]
    text = f"[[ ## analysis ## ]]\nboth suit\n\n[[ ## answer ## ]]\n{reply}"

    outputs = read_answer(SelectSolutions, text, {"options": options}).outputs

    assert outputs["answer"] == ["S2", "S7"]


def test_an_unknown_option_is_left_out_of_a_selection_and_counted() -> None:
    options = ["S1: a walk", "S2: a swim", "S3: a nap"]
    text = '{"analysis": "x", "answer": ["S9", "S1"]}'

    answer = read_answer(SelectSolutions, text, {"options": options})

    assert answer.outputs["answer"] == ["S1"]
    repairs = [(repair.kind, repair.path) for repair in answer.repairs]
    assert ("element", "answer[0]") in repairs


# Markers of prompts and of chat templates.


@pytest.mark.parametrize(
    "marker",
    [
        "[[ ## answer ## ]]",
        "##answer##",
        "<|im_end|>",
        "[INST]",
        "[/INST]",
        "<<CUSTOM-TYPE-START",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[TOOL_RESULTS]",
        "[AVAILABLE_TOOLS]",
        "[TOOL_CALLS]",
        "<tool_call>",
        "</tool_call>",
        "<extra_id_0>",
        "[gMASK]",
        "<sop>",
        "]~b]",
        "]~!b[",
        "[e~[",
        "<|turn>",
        "<turn|>",
    ],
)
def test_a_marker_in_a_value_is_escaped_and_comes_back(marker: str) -> None:
    """Markers separate the parts of a prompt, or the messages of a chat.

    A user who writes one must not be able to end a part of the prompt.
    """
    value = {"note": [f"She wrote {marker}", marker]}

    escaped = escape_markers(value)

    assert marker not in str(escaped)
    for text in escaped["note"]:
        assert not HEADER.match(text)
    assert unescape_markers(escaped) == value


# Values of a declared type.


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Thing(BaseModel):
    """An element of a list that a model is asked for. All but `name` and `kind` has a default."""

    id: Annotated[str, IdFrom("dialogue", allow_new=True)] = ""
    name: str
    kind: Literal["animal", "place"]
    count: int = 1
    tags: list[str] = []


REX = {"name": "Rex", "kind": "animal"}


def read_value(raw: Any, value_type: Any) -> tuple[Any, list[str]]:
    """Return a value of a type, and the kinds of the repairs that were needed to read it.

    A repair makes a value of another form fit. `reading/repairs.py` says what each kind means.

    The answer is about a dialogue with the turns D1:1, D1:2 and D2:1, to which ids in it refer.
    """
    dialogue = "[D1:1] Ann: words\n[D1:2] Ann: words\n[D2:1] Ann: words\n"
    reader = ValueReader({"dialogue": dialogue})
    value = reader.read(raw, value_type, "x")
    return value, [repair.kind for repair in reader.repairs.entries]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            [{"name": "Rex", "kind": "animal"}], [Thing(name="Rex", kind="animal")], id="a list"
        ),
        pytest.param(
            '[{"name": "Rex", "kind": "animal"}]',
            [Thing(name="Rex", kind="animal")],
            id="JSON of a list",
        ),
        pytest.param([], [], id="an empty list"),
    ],
)
def test_a_list_of_its_declared_type_is_read_without_repairs(
    raw: Any, expected: list[Thing]
) -> None:
    things, repairs = read_value(raw, list[Thing])

    assert things == expected
    assert repairs == []


@pytest.mark.parametrize("raw", [None, "none"])
def test_null_or_a_word_for_it_is_read_without_repairs_where_it_is_allowed(raw: Any) -> None:
    value, repairs = read_value(raw, int | None)

    assert value is None
    assert repairs == []


@pytest.mark.parametrize(
    ("raw", "expected_repairs"),
    [
        # Brackets are missing, or there are too many.
        pytest.param(REX, ["shape"], id="one object in place of a list"),
        pytest.param({"items": [REX]}, ["shape"], id="a list inside an object"),
        # Broken JSON is mended ("layout"), and the value is read up to its end ("cut").
        pytest.param(
            '[{"name": "Rex", "kind": "animal"}', ["layout", "cut"], id="the end is missing"
        ),
        # Elements that cannot be read are left out.
        pytest.param([REX, None], ["element"], id="null in a list"),
        pytest.param([REX, "and so on"], ["element"], id="a text in a list of objects"),
        pytest.param(
            [REX, {"name": "Rex", "kind": "mineral"}],
            ["element"],
            id="an object with a value that is not allowed",
        ),
    ],
)
def test_a_list_of_another_form_is_read_and_its_repairs_are_counted(
    raw: Any, expected_repairs: list[str]
) -> None:
    """A list of things was asked for. From each of these, a list with the dog Rex alone is read."""
    things, repairs = read_value(raw, list[Thing])

    assert things == [Thing(name="Rex", kind="animal")]
    assert repairs == expected_repairs


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param({"first": "a walk", "second": "a swim"}, ["a walk", "a swim"], id="values"),
        pytest.param({"first": "a walk"}, ["a walk"], id="one value"),
        pytest.param(
            {"plans": {"first": "a walk", "second": "a swim"}},
            ["a walk", "a swim"],
            id="values of an object below one key",
        ),
        pytest.param(
            {"first": {"plan": "a walk"}, "second": {"plan": "a swim"}},
            ["a walk", "a swim"],
            id="values of several objects",
        ),
        pytest.param({}, [], id="no value"),
    ],
)
def test_the_values_of_an_object_are_read_where_a_list_of_texts_is_due(
    raw: dict[str, Any], expected: list[str]
) -> None:
    """The repair "shape" says that the value had another shape than was asked for."""
    texts, repairs = read_value(raw, list[str])

    assert texts == expected
    assert set(repairs) == {"shape"}


@pytest.mark.parametrize(
    ("field", "raw", "expected", "expected_repairs"),
    [
        pytest.param("count", "3", 3, [], id="a number as a text"),
        pytest.param("kind", "ANIMALS.", "animal", ["spelling"], id="another spelling"),
        pytest.param("name", 7, "7", ["cast"], id="a number in place of a text"),
        # The default of `count` is 1.
        pytest.param("count", None, 1, ["null"], id="null in place of a number"),
        pytest.param("count", "many", 1, ["field"], id="a word in place of a number"),
    ],
)
def test_a_field_of_another_form_is_read_and_its_repair_is_counted(
    field: str, raw: Any, expected: Any, expected_repairs: list[str]
) -> None:
    """A thing has a name, which is a text, a kind ("animal" or "place"), and a count, a number.

    One of its fields has another form than was asked for.
    """
    thing, repairs = read_value({"name": "Rex", "kind": "animal", field: raw}, Thing)

    assert getattr(thing, field) == expected
    assert repairs == expected_repairs


@pytest.mark.parametrize(
    ("raw", "value_type", "expected"),
    [("yes", bool, True), ("No.", bool, False), ("80%", int, 80)],
)
def test_a_text_is_read_as_a_truth_value_or_a_number(
    raw: str, value_type: type, expected: Any
) -> None:
    """The repair "cast" says that a text had to be converted."""
    value, repairs = read_value(raw, value_type)

    assert value == expected
    assert repairs == ["cast"]


@pytest.mark.parametrize(
    ("raw", "value_type", "expected"),
    [
        ("LARGE", Size, Size.LARGE),
        ("No: the dates differ.", Literal["yes", "no"], "no"),
    ],
)
def test_an_allowed_value_is_read_in_another_spelling(
    raw: str, value_type: Any, expected: Any
) -> None:
    """The sizes are "small" and "large", as values of an enumeration."""
    value, repairs = read_value(raw, value_type)

    assert value == expected
    assert repairs == ["spelling"]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("[{'name': 'Rex', 'kind': 'animal'},]", id="Python"),
        pytest.param("[{“name”: “Rex”, “kind”: “animal”}]", id="curly quotes"),
        pytest.param(
            'Found:\n[{"name": "Rex", "kind": "animal"}]\nThat is all.', id="prose around"
        ),
        pytest.param(
            '```\n[{"name": "Oslo", "kind": "place"}]\n```\n'
            'No:\n```\n[{"name": "Rex", "kind": "animal"}]\n```',
            id="a second attempt",
        ),
    ],
)
def test_broken_json_is_repaired_and_counted(raw: str) -> None:
    """Which kinds of repairs there are depends on the library json-repair."""
    things, repairs = read_value(raw, list[Thing])

    assert things == [Thing(name="Rex", kind="animal")]
    assert repairs


def test_several_objects_are_read_where_a_list_is_due() -> None:
    one_object_a_line = '{"name": "Rex", "kind": "animal"}\n{"name": "Oslo", "kind": "place"}'

    things, repairs = read_value(one_object_a_line, list[Thing])

    assert things == [Thing(name="Rex", kind="animal"), Thing(name="Oslo", kind="place")]
    assert repairs


def test_an_object_whose_keys_are_ids_is_read_as_a_list() -> None:
    """Each element of the list has an id, which the model wrote as its key."""
    raw = {"dog": {"name": "Rex", "kind": "animal"}}

    things, repairs = read_value(raw, list[Thing])

    assert things == [Thing(id="dog", name="Rex", kind="animal")]
    assert repairs


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        [None],
        "I cannot help with that.",
        pytest.param([{"name": "Rex"}], id="an object without the required kind"),
        pytest.param('[{"name": "Rex", "kind": "animal"}, {"name": "Os', id="a list that was cut"),
    ],
)
def test_a_list_of_things_is_not_made_up(raw: Any) -> None:
    """A thing needs a name and a kind. A list that was cut within a thing is not trusted at all."""
    with pytest.raises(UnreadableError):
        read_value(raw, list[Thing])


@pytest.mark.parametrize(
    ("raw", "value_type"),
    [
        ('["a walk", "a sw', list[str]),
        ("maybe", bool),
        ("3.5", int),
        ("yes and no", Literal["yes", "no"]),
        ("CORRECT? No, wait. WRONG.", Literal["CORRECT", "WRONG"]),
        ("", Literal["yes", "no"]),
        ("enormous", Size),
        (None, str),
        ({"a": 1, "b": 2}, str),
    ],
)
def test_a_missing_value_of_another_type_is_not_made_up(raw: Any, value_type: Any) -> None:
    """A value of the declared type cannot be read from any of these."""
    with pytest.raises(UnreadableError):
        read_value(raw, value_type)


@pytest.mark.parametrize(
    ("raw", "matched_id"),
    [
        ("D1:2", "D1:2"),
        ('"D1:2".', "D1:2"),
        ("turn D1:2", "D1:2"),
        ("7", "m7"),
        (7, "m7"),
        (2, "D1:2"),
        ("1:2", "D1:2"),
        (1, None),
        ("D1:1 or D1:2", None),
        ("D9:9", None),
        ("", None),
    ],
)
def test_an_id_is_matched_if_exactly_one_can_be_meant(raw: Any, matched_id: str | None) -> None:
    """Models write ids with decoration, or the last number of an id alone.

    The number 2 is the end of one known id, D1:2. The number 1 is the end of two.
    """
    known_ids = ["D1:1", "D1:2", "D2:1", "m7"]

    assert IdMatcher(known_ids).match(raw) == matched_id


WORDS_FOR_MOODS = {"fine": "good"}


class Mood(BaseModel):
    """A mood, "good" or "bad". A model may also write "fine", which means "good"."""

    mood: Annotated[
        Literal["good", "bad"],
        BeforeValidator(lambda raw: WORDS_FOR_MOODS.get(raw, raw)),
    ]


def test_a_field_may_translate_a_word_before_it_is_read() -> None:
    """H2Memory reads "positive" as "pos" in this way, for example."""
    moods, _ = read_value([{"mood": "fine"}, {"mood": "bad"}], list[Mood])

    assert [mood.mood for mood in moods] == ["good", "bad"]


def test_texts_of_repaired_json_are_ordinary_texts() -> None:
    """While JSON is repaired, its text counts how often it is read, and fails after a limit.

    A value must not be such a text, since it would fail later, wherever a memory uses it.
    """
    texts, _ = read_value('["ab", "cd",,]', list[str])

    assert texts == ["ab", "cd"]
    assert {type(text) for text in texts} == {str}


def test_an_unknown_id_is_left_out_of_a_list_and_counted() -> None:
    """The dialogue has the turn D1:1, and no turn D9:9."""
    ids_of_turns = list[Annotated[str, IdFrom("dialogue")]]

    value, repairs = read_value(["D1:1", "D9:9"], ids_of_turns)

    assert value == ["D1:1"]
    assert repairs == ["unknown id"]


def test_ids_in_brackets_are_read_as_a_list() -> None:
    """The dialogue has turns with the ids D1:1 and D2:1, which prompts show in brackets."""
    ids_of_turns = list[Annotated[str, IdFrom("dialogue")]]

    value, _ = read_value("[D1:1], [D2:1]", ids_of_turns)

    assert value == ["D1:1", "D2:1"]


def test_an_unknown_id_is_read_where_new_ids_are_allowed() -> None:
    """A model may have to name new entries of a memory."""
    known_or_new_ids = list[Annotated[str, IdFrom("dialogue", allow_new=True)]]

    value, repairs = read_value(["NEW_1"], known_or_new_ids)

    assert value == ["NEW_1"]
    assert repairs == []


@pytest.mark.parametrize("raw", ["many", 3])
def test_a_value_of_several_types_is_read_as_the_first_that_fits(raw: Any) -> None:
    """The declared type is a number or a text."""
    value, repairs = read_value(raw, value_type=int | str)

    assert value == raw
    assert type(value) is type(raw)
    assert repairs == []
