"""Reading answers: any layout, required outputs or none, and no error but the one that asks again."""

from __future__ import annotations

import json
from typing import Any

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.reading.answer import read_answer
from mempiler.reading.mends import UnreadableError
from mempiler.signatures.answering import RespondPersonally
from mempiler.signatures.h2memory import OutlineTopics
from mempiler.signatures.memory_r2 import ManageMemory
from mempiler.signatures.pgr import ImagineTree, UpdateFacts
from mempiler.signatures.pramem import ReflectOnPractice
from mempiler.signatures.rgmem import SynthesizeEvidence
from pydantic import BaseModel

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
TURNS = st.lists(st.sampled_from(["D1:1", "D1:2"]), unique=True)
WORDS = st.text("abc ü漢字.,'", min_size=1).map(str.strip).filter(lambda text: len(text) > 1)
VALID: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "UpdateFacts": st.fixed_dictionaries(
        {"info": WORDS, "type": st.sampled_from(["Goal", "Event"]), "turn_ids": TURNS, "fact_id": st.just("NEW_1")}
    ).map(lambda fact: {"facts": [fact]}),
    "ManageMemory": st.fixed_dictionaries(
        {"op": st.sampled_from(["INSERT", "NONE"]), "content": WORDS, "turn_id": st.just("D1:1")}
    ).map(lambda edit: {"operations": [edit, {"op": "DELETE", "memory_id": "m1"}]}),
    "OutlineTopics": st.fixed_dictionaries({"requirement": WORDS, "preference": WORDS, "turn_span": TURNS}).map(
        lambda topic: {"outlines": [topic]}
    ),
    "ReflectOnPractice": st.fixed_dictionaries(
        {"action": st.sampled_from(["add pattern", "add alert"]), "content": WORDS}
    ).map(lambda draft: {"tasks": [{"verdict": "right"}], "proposals": [draft]}),
    "SynthesizeEvidence": st.fixed_dictionaries({"text": WORDS, "turn_ids": TURNS}).map(
        lambda one: {"fact": "Ann ran.", "conclusions": [one]}
    ),
    "ImagineTree": st.fixed_dictionaries({"action": WORDS, "action_id": st.just("A1")}).map(
        lambda node: {"tree": [node]}
    ),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FACTS = '[{"info": "Ann runs", "type": "Activity"}]'


def given_names(signature: Any) -> list[str]:
    """Names of outputs and of the fields of their objects: arbitrary objects should sometimes have them."""
    names = list(signature.output_fields)
    for field in signature.output_fields.values():
        for kind in getattr(field.annotation, "__args__", ()):
            names += list(getattr(kind, "model_fields", ()))
    return names


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
    found, mends = read_answer(UpdateFacts, text, INPUTS)
    assert [fact.info for fact in found["facts"]] == ["Ann runs"]
    assert bool(mends) == (not text.removeprefix("<think>").startswith(("[[ ##", "【【")))


@pytest.mark.parametrize(
    "text", ["", "I cannot help with that.", "[[ ## facts ## ]]\n", "[[ ## fact ## ]]\n[]", f"{FACTS[:-12]}"]
)
def test_a_missing_required_output_is_asked_for_again(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_answer(UpdateFacts, text, INPUTS)


def test_what_a_model_thinks_before_it_answers_is_no_answer() -> None:
    said = "<think>\n[[ ## answer ## ]]\nStay at home.</think>\n[[ ## answer ## ]]\nGo for a walk."
    assert read_answer(RespondPersonally, said, {})[0]["answer"] == "Go for a walk."


def test_an_auxiliary_output_never_sinks_the_main_one() -> None:
    answer = (
        '[[ ## tasks ## ]]\nall fine\n\n[[ ## proposals ## ]]\n[{"action": "add pattern", "content": "Likes jazz"}]'
    )
    found, mends = read_answer(ReflectOnPractice, answer, INPUTS)
    assert [draft.content for draft in found["proposals"]] == ["Likes jazz"]
    assert found["tasks"] == []
    assert [(mend.kind, mend.where) for mend in mends] == [("field", "tasks")]
    found, mends = read_answer(RespondPersonally, "[[ ## answer ## ]]\nGo for a walk.", {})
    assert (found["reasoning"], found["answer"]) == ("", "Go for a walk.")
    assert [mend.kind for mend in mends] == ["field"]


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_arbitrary_answers_are_read_or_unreadable(signature: type[dspy.Signature], data: st.DataObject) -> None:
    names = st.sampled_from(given_names(signature))
    known = st.dictionaries(names, JSON | st.lists(st.dictionaries(names, JSON, max_size=4), max_size=3), max_size=4)
    value = data.draw(st.text(max_size=60) | JSON | known)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    marked = [f"[[ ## {name} ## ]]\n{{}}" for name in signature.output_fields]
    layout = data.draw(st.sampled_from(["{}", "```json\n{}\n```", *marked]))
    text = layout.replace("{}", text)
    cut = data.draw(st.integers(0, len(text)))
    for part in (text, text[:cut]):
        try:
            found, _ = read_answer(signature, part, INPUTS)
        except UnreadableError:
            continue
        assert found.keys() == signature.output_fields.keys()


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_valid_outputs_are_read_as_they_are(signature: type[dspy.Signature], data: st.DataObject) -> None:
    values = data.draw(VALID[signature.__name__])
    written = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    text = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in written.items())
    found, mends = read_answer(signature, f"{text}\n\n[[ ## completed ## ]]", INPUTS)
    assert mends == []
    for name, value in values.items():
        read = [one.model_dump(exclude_unset=True) if isinstance(one, BaseModel) else one for one in found[name]]
        assert (found[name] if isinstance(value, str) else read) == value
