"""Reading answers: any layout, required outputs or none, and no error but the one that asks again."""

from __future__ import annotations

import json
from typing import Any

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.reading.answer import read_answer
from mempiler.reading.kinds import UnreadableError
from mempiler.signatures.answering import RespondPersonally
from mempiler.signatures.h2memory import OutlineTopics
from mempiler.signatures.memory_r2 import ManageMemory
from mempiler.signatures.pgr import ImagineTree, UpdateFacts
from mempiler.signatures.pramem import ReflectOnPractice
from mempiler.signatures.rgmem import SynthesizeEvidence

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
    found, mends = read_answer(UpdateFacts, text, INPUTS)
    assert [fact.info for fact in found["facts"]] == ["Ann runs"]
    assert bool(mends) == (not text.removeprefix("<think>").startswith(("[[ ##", "【【")))


def test_a_value_below_the_heading_of_another_output_is_that_ones() -> None:
    proposals = [{"action": "remove", "experience_id": "pattern-1"}]
    text = f'**Tasks:**\n[{{"task": "a", "verdict": "right"}}]\n\n**Proposals:**\n{json.dumps(proposals)}'
    found, _ = read_answer(ReflectOnPractice, text, INPUTS)
    assert ([each.task for each in found["tasks"]], [each.action for each in found["proposals"]]) == (["a"], ["remove"])


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
    proposals = '[{"action": "add pattern", "content": "Likes jazz"}]'
    answer = f"[[ ## tasks ## ]]\nall fine\n\n[[ ## proposals ## ]]\n{proposals}"
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
