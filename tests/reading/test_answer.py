"""Reading answers: any layout and spelling; form is mended and counted, content not made up, bad elements left out."""

from __future__ import annotations

import enum
import json
from typing import Annotated, Any, Literal

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.reading.answer import read_answer
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

SIGNATURES: list[Any] = [UpdateFacts, ManageMemory, OutlineTopics, ReflectOnPractice, SynthesizeEvidence, ImagineTree]
INPUTS: dict[str, Any] = {
    "dialogue": "[D1:1] Ann: a\n[D1:2] Bob: b",
    "conversation": "[D1:1] Ann: a\n[D1:2] Bob: b",
    "memories": [{"memory_id": "m1"}],
    "new_facts": [{"turn_id": "D1:1"}],
    "practised_record": "[a3] x => y",
    "recent_records": "[a1] x => y\n[a2] x => y",
    "pattern_experiences": [{"experience_id": "pattern-1"}],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FACTS = '[{"info": "Ann runs", "type": "Activity"}]'


@pytest.mark.parametrize(
    "text",
    [
        f"[[ ## facts ## ]]\n{FACTS}\n\n[[ ## completed ## ]]",
        f"[[ ## facts ## ]]\n{FACTS}",
        f'{{"facts": {FACTS}}}',
        f'```json\n{{"facts": {FACTS}}}\n```',
        f'Sure:\n```json\n{{"facts": {FACTS}}}\n```\nDone.',
        f"{FACTS}",
        f"**Facts:**\n{FACTS}",
        f"facts：{FACTS}",
        f"【【 ＃＃ facts ＃＃ 】】\n{FACTS}",
        f"<think>[[ ## facts ## ]]\n[]</think>\n[[ ## facts ## ]]\n{FACTS}",
    ],
)
def test_any_layout_is_read(text: str) -> None:
    found, repairs = read_answer(UpdateFacts, text, INPUTS)
    assert [fact.info for fact in found["facts"]] == ["Ann runs"]
    assert bool(repairs) == (not text.removeprefix("<think>").startswith(("[[ ##", "【【")))


def test_a_value_below_the_heading_of_another_output_is_that_ones() -> None:
    proposals = [{"action": "remove", "experience_id": "pattern-1"}]
    text = f'**Tasks:**\n[{{"task": "a", "verdict": "right"}}]\n\n**Proposals:**\n{json.dumps(proposals)}'
    found, _ = read_answer(ReflectOnPractice, text, INPUTS)
    assert [each.task for each in found["tasks"]] == ["a"]
    assert [each.action for each in found["proposals"]] == ["remove"]


def test_bold_type_around_a_heading_and_its_text_is_no_part_of_the_text() -> None:
    answer, _ = read_answer(AnswerFromContext, "**Answer: green tea**", {})
    assert answer["answer"] == "green tea"


def test_a_repeated_heading_does_not_end_the_answer() -> None:
    proposals = [{"action": "remove", "experience_id": "pattern-1"}]
    tasks = [{"task": "a", "verdict": "right"}]
    text = f"**Tasks:**\n{json.dumps(tasks)}\n\n**Tasks:**\nno more\n\n**Proposals:**\n{json.dumps(proposals)}"
    answer, _ = read_answer(ReflectOnPractice, text, INPUTS)
    assert [task.task for task in answer["tasks"]] == ["a"]
    assert [proposal.action for proposal in answer["proposals"]] == ["remove"]


def test_json_with_a_slip_and_prose_behind_it_is_not_taken_for_cut() -> None:
    answer, repairs = read_answer(UpdateFacts, '[{"info": "Ann runs", "type": "Activity",}] That is all.', INPUTS)
    assert [fact.info for fact in answer["facts"]] == ["Ann runs"]
    assert "cut" not in [repair.kind for repair in repairs]


class Mood(BaseModel):
    mood: Annotated[Literal["good", "bad"], BeforeValidator(lambda raw: {"fine": "good"}.get(raw, raw))]


class ListMoods(dspy.Signature):
    """List the moods of a day."""

    day: str = dspy.InputField()
    moods: list[Mood] = dspy.OutputField()


def test_a_field_replaces_synonyms_before_its_value_is_read() -> None:
    answer, _ = read_answer(ListMoods, '{"moods": [{"mood": "fine"}, {"mood": "bad"}]}', {})
    assert [mood.mood for mood in answer["moods"]] == ["good", "bad"]


@pytest.mark.parametrize(
    "text", ["", "I cannot help with that.", "[[ ## facts ## ]]\n", "[[ ## fact ## ]]\n[]", f"{FACTS[:-12]}"]
)
def test_a_missing_required_output_is_asked_for_again(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_answer(UpdateFacts, text, INPUTS)


def test_thoughts_before_an_answer_are_not_read_as_the_answer() -> None:
    said = "<think>\n[[ ## answer ## ]]\nStay at home.</think>\n[[ ## answer ## ]]\nGo for a walk."
    assert read_answer(RespondPersonally, said, {})[0]["answer"] == "Go for a walk."


def test_an_auxiliary_output_never_sinks_the_main_one() -> None:
    proposals = '[{"action": "add pattern", "content": "Likes jazz"}]'
    answer = f"[[ ## tasks ## ]]\nall fine\n\n[[ ## proposals ## ]]\n{proposals}"
    found, repairs = read_answer(ReflectOnPractice, answer, INPUTS)
    assert [draft.content for draft in found["proposals"]] == ["Likes jazz"]
    assert found["tasks"] == []
    assert [(repair.kind, repair.path) for repair in repairs] == [("field", "tasks")]
    found, repairs = read_answer(RespondPersonally, "[[ ## answer ## ]]\nGo for a walk.", {})
    assert found["reasoning"] == ""
    assert found["answer"] == "Go for a walk."
    assert [repair.kind for repair in repairs] == ["field"]


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_arbitrary_answers_are_read_or_unreadable(signature: type[dspy.Signature], data: st.DataObject) -> None:
    # Arbitrary objects should sometimes have the fields that are due.
    fields = signature.output_fields
    kinds = [kind for field in fields.values() for kind in getattr(field.annotation, "__args__", ())]
    names = st.sampled_from([*fields, *(name for kind in kinds for name in getattr(kind, "model_fields", ()))])
    known = st.dictionaries(names, JSON | st.lists(st.dictionaries(names, JSON, max_size=4), max_size=3), max_size=4)
    value = data.draw(st.text(max_size=60) | JSON | known)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    marked = [f"[[ ## {name} ## ]]\n{{}}" for name in fields]
    layout = data.draw(st.sampled_from(["{}", "```json\n{}\n```", *marked]))
    text = layout.replace("{}", text)
    cut = data.draw(st.integers(0, len(text)))
    for part in (text, text[:cut]):
        try:
            found, _ = read_answer(signature, part, INPUTS)
        except UnreadableError:
            continue
        assert found.keys() == fields.keys()


LETTERS = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]
SOLUTIONS = [f"S{n}: solution {n}" for n in range(1, 9)]


def test_the_text_of_an_option_chooses_it_and_none_or_several_are_asked_for_again() -> None:
    for reply in ("A swim", "(b) a swim", "I'd go for (b): a swim.", "B"):
        found, _ = read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": LETTERS})
        assert found["answer"] == "(b)"
    for reply in ("(a) or (b)", "(b), not (a)", "a or b", "none", "e", "", "I cannot tell.", "a/b"):
        with pytest.raises(UnreadableError, match="chooses none of the 4 options, or several"):
            read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": LETTERS})


@pytest.mark.parametrize(
    "reply",
    [
        *("[2,7]", "S2, S7", '["S2: solution 2", "s7"]', '{"S2": 1, "S7": 1}', "- S2\n- S 07"),
        '```json\n{"answer": ["S1"]}\n```\nBut:\n```json\n{"answer": ["S2", "S7"]}\n```',
        '["Ｓ2", null, "S7"]',
    ],
)
def test_a_selection_is_read_in_every_spelling(reply: str) -> None:
    answer = f"[[ ## analysis ## ]]\nboth suit\n\n[[ ## answer ## ]]\n{reply}"
    assert read_answer(SelectSolutions, answer, {"options": SOLUTIONS})[0]["answer"] == ["S2", "S7"]


def test_an_unknown_id_is_dropped_and_counted() -> None:
    found, repairs = read_answer(SelectSolutions, '{"analysis": "x", "answer": ["S9", "S1"]}', {"options": SOLUTIONS})
    assert found["answer"] == ["S1"]
    assert ("element", "answer[0]") in [(repair.kind, repair.path) for repair in repairs]


MARKERS = """
##answer## <|im_end|> [INST] [/INST] <<CUSTOM-TYPE-START [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_RESULTS]
[AVAILABLE_TOOLS] [TOOL_CALLS] <tool_call> </tool_call> <extra_id_0> [gMASK] <sop> ]~b] ]~!b[ [e~[ <|turn> <turn|>
"""


@pytest.mark.parametrize("said", ["[[ ## answer ## ]]", *MARKERS.split()])
def test_a_marker_in_a_value_is_no_marker_and_comes_back(said: str) -> None:
    shown = escape_markers({"note": [f"She wrote {said}", said]})
    assert said not in str(shown)
    assert not any(HEADER.match(text) for text in shown["note"])
    assert unescape_markers(shown) == {"note": [f"She wrote {said}", said]}


IDS = ["D1:1", "D1:2", "D2:1", "m7"]
SHOWN = {"dialogue": "".join(f"[{id}] Ann: words\n" for id in IDS)}


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Thing(BaseModel):
    id: Annotated[str, IdFrom("dialogue", allow_new=True)] = ""
    name: str
    kind: Literal["animal", "place"]
    count: int = 1
    tags: list[str] = []


class Edit(BaseModel):
    target: Annotated[str | None, IdFrom("dialogue")] = None


DOG = {"name": "Rex", "kind": "animal"}
REX = Thing(name="Rex", kind="animal")
OSLO = Thing(name="Oslo", kind="place")


def read(raw: Any, annotation: Any) -> tuple[Any, list[str]]:
    reader = ValueReader(SHOWN)
    value = reader.read(raw, annotation, "x")
    return value, [repair.kind for repair in reader.repairs.entries]


@pytest.mark.parametrize(
    ("raw", "annotation", "value", "kinds"),
    [
        ([DOG], list[Thing], [REX], []),
        ('[{"name": "Rex", "kind": "animal"}]', list[Thing], [REX], []),
        (DOG, list[Thing], [REX], ["shape"]),
        ({"items": [DOG]}, list[Thing], [REX], ["shape"]),
        ({"Rex": {"name": "Rex", "kind": "animal"}}, list[Thing], [Thing(id="Rex", name="Rex", kind="animal")], None),
        ('{"name": "Rex", "kind": "animal"}\n{"name": "Oslo", "kind": "place"}', list[Thing], [REX, OSLO], None),
        ("[{'name': 'Rex', 'kind': 'animal'},]", list[Thing], [REX], None),
        ("[{“name”: “Rex”, “kind”: “animal”}]", list[Thing], [REX], None),
        ('[{"name": "Rex", "kind": "animal"}', list[Thing], [REX], ["layout", "cut"]),
        ('Found:\n[{"name": "Rex", "kind": "animal"}]\nThat is all.', list[Thing], [REX], None),
        (
            '```\n[{"name": "Oslo", "kind": "place"}]\n```\nNo:\n```\n[{"name": "Rex", "kind": "animal"}]\n```',
            list[Thing],
            [REX],
            None,
        ),
        ([DOG, None], list[Thing], [REX], ["element"]),
        ([DOG, "and so on"], list[Thing], [REX], ["element"]),
        ([DOG, {**DOG, "kind": "mineral"}], list[Thing], [REX], ["element"]),
        ([{**DOG, "kind": "ANIMALS."}], list[Thing], [REX], ["spelling"]),
        ([{**DOG, "count": None}], list[Thing], [REX], ["null"]),
        ({"target": None}, Edit, Edit(), []),
        ([{**DOG, "count": "many"}], list[Thing], [REX], ["field"]),
        ([{**DOG, "name": 7}], list[Thing], [Thing(name="7", kind="animal")], ["cast"]),
        ([{**DOG, "count": "3"}], list[Thing], [Thing(name="Rex", kind="animal", count=3)], []),
        ("yes", bool, True, ["cast"]),
        ("No.", bool, False, ["cast"]),
        ("LARGE", Size, Size.LARGE, ["spelling"]),
        ("No: the dates differ.", Literal["yes", "no"], "no", ["spelling"]),
        ("none", int | None, None, []),
        ("80%", int, 80, ["cast"]),
        ([], list[Thing], [], []),
    ],
)
def test_form_is_mended_and_counted(raw: Any, annotation: Any, value: Any, kinds: list[str] | None) -> None:
    found, mended = read(raw, annotation)
    assert found == value
    if kinds is not None:
        assert mended == kinds
    else:
        # How broken JSON is mended is the business of json-repair; that it was is counted.
        assert mended


@pytest.mark.parametrize(
    ("raw", "annotation"),
    [
        (None, list[Thing]),
        ("", list[Thing]),
        ([None], list[Thing]),
        ([{"name": "Rex"}], list[Thing]),
        ([{"kind": "animal"}], list[Thing]),
        ("I cannot help with that.", list[Thing]),
        ('[{"name": "Rex", "kind": "animal"}, {"name": "Os', list[Thing]),
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
def test_missing_values_are_not_made_up(raw: Any, annotation: Any) -> None:
    with pytest.raises(UnreadableError):
        read(raw, annotation)


@pytest.mark.parametrize(
    ("said", "id"),
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
def test_an_id_is_matched_where_exactly_one_can_be_meant(said: Any, id: str | None) -> None:
    assert IdMatcher(IDS).match(said) == id


def test_texts_of_repaired_json_are_ordinary_texts() -> None:
    # The parser meters the text that it repairs, and parts of a metered text are metered too.
    texts, _ = read('["ab", "cd",,]', list[str])
    assert [type(text) for text in texts] == [str, str]


def test_unknown_ids_are_dropped_from_lists_and_counted() -> None:
    ids = list[Annotated[str, IdFrom("dialogue")]]
    assert read(["D1:1", "D9:9"], ids) == (["D1:1"], ["unknown id"])
    assert read("[D1:1], [D2:1]", ids)[0] == ["D1:1", "D2:1"]
    assert read(["NEW_1"], list[Annotated[str, IdFrom("dialogue", allow_new=True)]]) == (["NEW_1"], [])


def test_a_value_of_several_types_is_read_as_the_first_that_fits() -> None:
    assert read("many", int | str) == ("many", [])
    assert read(3, int | str) == (3, [])
