"""Writers show their model what users left of the entries of a memory, and write nothing into what was amended."""

import json
import re
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from mempiler import Session, Store, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.memory.amending import Amendment, Amendments, writing_under
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.pgr.memory import PersonalMemory
from mempiler.signatures.pgr import FactChange


def of_memory_r2(kind: str, text: str, n: int) -> dict[str, Any]:
    """Every line is a fact; "moved" updates the first memory that is shown, anything else is inserted."""
    if kind == "facts":
        said = text.rpartition("[[ ## dialogue ## ]]")[2].partition("[[ ## earlier")[0]
        lines = re.findall(r"^\[(D\d+:\d+)\](?: \(.*?\))? (\w+): (.*)$", said, re.MULTILINE)
        return {"facts": [{"speaker": who, "turn_id": id, "fact": fact} for id, who, fact in lines]}
    memories, facts = (_field(text, name) for name in ("memories", "new_facts"))
    edits = [{"op": "INSERT", "speaker": f["speaker"], "content": f["fact"], "turn_id": f["turn_id"]} for f in facts]
    for edit in edits:
        if "moved" in edit["content"] and memories:
            edit |= {"op": "UPDATE", "memory_id": memories[0]["memory_id"]}
    return {"operations": edits}


def of_pgr(kind: str, text: str, n: int) -> dict[str, Any]:
    """The same with the prompts of PGR."""
    known = _field(text, "existing_facts")
    said = text.rpartition("[[ ## dialogue ## ]]")[2]
    lines = re.findall(r"^\[(D\d+:\d+)\](?: \(.*?\))? (\w+): (.*)$", said, re.MULTILINE)
    facts = [{"fact_id": "NEW_1", "info": fact, "type": "Activity", "turn_ids": [id]} for id, _, fact in lines]
    for fact in facts:
        if "moved" in fact["info"] and known:
            fact |= {"fact_id": known[0]["fact_id"], "state": "update"}
    return {"facts": facts}


def _field(text: str, name: str) -> list[dict[str, Any]]:
    return json.loads(text.split(f"[[ ## {name} ## ]]")[1].split("[[ ##")[0].split("Respond with")[0])


METHODS = {"memory-r2": of_memory_r2, "pgr": of_pgr, "logs+memory-r2": of_memory_r2}
SETTINGS = {"pgr": {"every": 1}}
"""Sessions that wait for an update are shown as they were said."""


@pytest.fixture(params=METHODS)
def memory(request: pytest.FixtureRequest, store: Store, scripted: Any) -> Any:
    """A user's memory whose scripted model writes down what is said, and its prompts as `memory.prompts`."""
    lm = scripted(METHODS[request.param])
    made = build(request.param, embedder=embedder(), **SETTINGS.get(request.param, {})).memory(store, "ada", lm=lm)
    made.prompts = lm.engine.prompts
    return made


def add(memory: Any, id: str, text: str) -> None:
    turn = Turn(id=f"{id}:1", speaker="Ada", text=text)
    memory.add(Session(id=id, time=datetime(2024, int(id[1:]), 3), turns=(turn,)))


def facts(memory: Any) -> dict[str, str]:
    """Ids by text, of facts."""
    return {entry.text: entry.id for entry in memory.list().entries if entry.kind == "fact"}


SECRET = "The code of the safe is falcon"


def test_no_prompt_shows_a_deleted_fact_and_what_is_said_again_is_a_fact_of_its_own(memory: Any) -> None:
    add(memory, "D1", SECRET)
    deleted = facts(memory)[SECRET]
    assert memory.delete(deleted)
    before = len(memory.prompts)
    add(memory, "D2", "The safe has a blue door")
    assert len(memory.prompts) > before
    assert not any("falcon" in text for _, text in memory.prompts[before:])
    add(memory, "D3", SECRET)
    found = facts(memory)
    assert sorted(found) == [SECRET, "The safe has a blue door"]
    assert memory.get(found[SECRET]).turns == ("D3:1",)
    memory.undo(deleted)
    texts = [entry.text for entry in memory.list().entries if entry.kind == "fact"]
    assert texts.count(SECRET) == 2


def test_an_update_of_a_reworded_fact_is_what_holds_since(memory: Any) -> None:
    add(memory, "D1", "Ada lives in Lissabon")
    assert memory.update(facts(memory)["Ada lives in Lissabon"], "Ada lives in Lisbon")
    before = len(memory.prompts)
    add(memory, "D2", "Ada moved to Porto")
    shown = "\n".join(text for _, text in memory.prompts[before:])
    assert ("Ada lives in Lisbon" in shown, "Lissabon" in shown) == (True, False)
    assert list(facts(memory)) == ["Ada moved to Porto"]
    assert memory.get(facts(memory)["Ada moved to Porto"]).turns == ("D1:1", "D2:1")


def amended(entries: Any, number: int, new: str | None) -> Amendments:
    """One amendment, of the entry of this number."""
    entry = entries[number]
    what = "delete" if new is None else "update"
    row = Amendment(1, what, entry.id, entry.kind, entry.text, entry.sources, new)
    return Amendments([row])


WORDS = ["a", "b", "c", "lives in Lisbon"]
EDITS = some.builds(
    Edit,
    op=some.sampled_from(["INSERT", "UPDATE", "DELETE"]),
    memory_id=some.sampled_from(["m2", "m3", "m4"]),
    speaker=some.just("Ada"),
    content=some.sampled_from(WORDS),
    sources=some.lists(some.sampled_from(["D8:1", "D9:1"]), min_size=1, max_size=2).map(tuple),
)


@given(some.lists(EDITS, max_size=8))
def test_no_edit_of_what_is_shown_changes_a_deleted_fact(edits: list[Edit]) -> None:
    inserts = [Edit("INSERT", speaker="Ada", content=text, sources=(f"D{n}:1",)) for n, text in enumerate(WORDS)]
    memory = FactMemory().apply(inserts)
    with writing_under(amended(memory.entries(), 0, None)):
        after = memory.apply(edits, ["m2", "m3", "m4"])
    assert after.facts[0] == memory.facts[0]


def test_an_amended_fact_is_consolidated_with_none(scripted: Any) -> None:
    import dspy

    method = build("fact-store", embedder=embedder(), every=1, merge_after=1).method
    said = [FactChange(info=f"Ada runs on {day}", type="Activity") for day in ("Monday", "monday", "Mondays")]
    memory = PersonalMemory().upsert(said, [])
    session = Session(id="D2", turns=(Turn(id="D2:1", speaker="Ada", text="I like tea"),))
    merged: list[str] = []

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "merged_fact":
            merged.append(text)
            return {"merged_fact": {"info": "Ada runs", "type": "Activity", "related_entities": []}}
        return {"facts": []}

    def write() -> PersonalMemory:
        with dspy.context(lm=scripted(reply)):
            return method.writer.write(memory.model_copy(update={"fresh": 9}), session)

    assert [fact.info for fact in write().facts] == ["Ada runs"]
    with writing_under(amended(memory.entries(), 0, None)):
        assert write().facts == memory.facts
    assert len(merged) == 1
