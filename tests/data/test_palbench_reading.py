"""PAL-Set's form: what a topic's history holds, what is read under which name, what is odd and what is refused."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import DataError
from mempiler.data.check import check
from mempiler.data.palbench.benchmark import PalGenerate, PalRestate, PalSelect
from mempiler.data.palbench.dialogue import PalDialogue
from mempiler.records import Logs, Session

PARTS = (PalRestate, PalGenerate, PalSelect, PalDialogue)


def _sample(number: int, month: int) -> dict[str, Any]:
    liked = [f"liked {number}a", f"liked {number}b"]
    hated = [f"hated {number}a", f"hated {number}b"]
    other = [{"solution": f"so-so {number}{letter}", "feedback": "neu"} for letter in "abcd"]
    said = [*[{"solution": s, "feedback": "neg"} for s in hated], *other]
    return {
        "sample_id": f"u1_sample{number}",
        "dialogue_timestamp": f"2024-0{month}-20 20:00:00",
        "logs": [
            {"timestamp": f"2024-0{month}-18 08:00", "content": f"log {number}a"},
            {"timestamp": f"2024-0{month}-20 20:00", "content": f"log {number}b"},
        ],
        "dialogue": {
            "turn_2": {"user": {"action": "x", "content": f"yes {number}"}, "assistant": {"content": f"so {number}"}},
            "turn_1": {"user": {"content": f"help {number}?"}, "assistant": {"content": f"why {number}?"}},
        },
        "topics": {
            "topic-1": {
                "user_query": f"query {number}",
                "implicit_needs": [f"need {number}a", f"need {number}b"],
                "requirement": f"requirement {number}",
                "solution": {"pos": liked, "neg": hated},
                "candidate_solutions": [*said, *[{"solution": s, "feedback": "pos"} for s in liked]],
            }
        },
    }


@pytest.fixture
def record() -> dict[str, Any]:
    """One user: two earlier samples and two that are asked."""
    return {"u1": {"history": [_sample(0, 1), _sample(1, 2)], "query": [_sample(2, 3), _sample(3, 4)]}}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(value: Any, name: str = "input.json") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
        return path

    return make


def _texts(history: Any) -> list[str]:
    return [turn.text for item in history for turn in item.turns]


@pytest.mark.parametrize("part", PARTS)
def test_no_answer_sees_its_own_dialogue(part: Any, record: dict[str, Any], write: Callable[..., Path]) -> None:
    first, second = (example.history for example in part.load(write(record)).examples)
    before = [f"{word} {n}{end}" for n in (0, 1) for word, end in (("log", "a"), ("log", "b"), ("help", "?"))]
    assert [text for text in _texts(first) if text in before] == before
    assert _texts(first)[-2:] == ["log 2a", "log 2b"]
    assert not any(word in _texts(first) for word in ("help 2?", "why 2?", "yes 2", "so 2", "log 3a"))
    assert not any(word in _texts(second) for word in ("help 3?", "why 3?", "yes 3", "so 3"))


def test_an_earlier_query_session_is_history_of_the_later(record: dict[str, Any], write: Callable[..., Path]) -> None:
    first, second = (example.history for example in PalRestate.load(write(record)).examples)
    assert second.prefixes[: len(first)] == first.prefixes
    assert _texts(second)[len(_texts(first)) :] == ["help 2?", "why 2?", "yes 2", "so 2", "log 3a", "log 3b"]


def test_logs_precede_the_dialogue_of_their_session(record: dict[str, Any], write: Callable[..., Path]) -> None:
    items = PalRestate.load(write(record)).examples[-1].history.items
    assert [type(item) for item in items] == [Logs, Session, Logs, Session, Logs, Session, Logs]
    assert [turn.id for turn in items[1].turns] == ["D1:1", "D1:2", "D1:3", "D1:4"]
    assert [turn.speaker for turn in items[1].turns] == ["user", "assistant"] * 2
    times = [item.time for item in items]
    assert times == sorted(times)


def test_queries_and_golds_of_the_parts(record: dict[str, Any], write: Callable[..., Path]) -> None:
    path = write(record)
    restate, generate, select, dialogue = (part.load(path).examples[0] for part in PARTS)
    assert (restate.question, restate.answer) == ("query 2", "requirement 2")
    assert (generate.question, generate.answer) == ("requirement 2", "liked 2a")
    assert (select.question, select.answer) == ("requirement 2", ["S7", "S8"])
    assert select.options[0] == "S1: hated 2a"
    assert (dialogue.question, dialogue.answer) == ("query 2", "requirement 2")
    assert {"requirement 2", "liked 2a"}.isdisjoint(map(str, dialogue.inputs().toDict().values()))


def test_current_logs_are_shown_as_they_are_on_demand(record: dict[str, Any], write: Callable[..., Path]) -> None:
    example = PalSelect.load(write(record), show_logs=True).examples[0]
    assert [item.id for item in example.inputs()["recent"]] == ["L3"]
    assert "recent" not in PalSelect.load(write(record)).examples[0].inputs()


def test_side_files_give_persona_and_evidence(record: dict[str, Any], write: Callable[..., Path]) -> None:
    path = write(record)
    write({"u1": {"gender": "f", "personality": {"Openness": "low"}}}, "background/background.json")
    write({"u1": {"2024-03-20": {"situation": "moved", "requirement_ids": ["work-2"]}}}, "situation.json")
    write({"u1": {"work": {"work-2": {"preference": {"pos": "calm", "neg": "noise"}}}}}, "preference.json")
    needs = [{"need": "need 2a", "evidences": ["log 2b", "elsewhere"]}]
    framework = {"u1": {"2024-03-20": {"topic-1": {"implicit_needs": needs}}}}
    write(framework, "dialogue_framework/requirement/requirement_framework.json")
    example = PalRestate.load(path).examples[0]
    persona = example.asked.persona
    assert persona.profile.splitlines() == ["gender: f", "personality: Openness low"]
    assert persona.situation == "moved"
    assert "noise" in persona.preferences
    assert "elsewhere" in persona.needs
    assert example.focus == ("L3:2",)


@pytest.mark.parametrize(
    ("language", "files"),
    [
        (None, ["input.json"]),
        ("zh", ["input.json"]),
        ("en", ["input_en.json"]),
        ("all", ["input.json", "input_en.json"]),
    ],
)
def test_a_folder_holds_both_languages(
    language: str | None, files: list[str], record: dict[str, Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    chinese = copy.deepcopy(record)
    chinese["u1"]["query"][0]["topics"]["topic-1"]["requirement"] = "需要休息"
    write(chinese, "data_synthesis_v2/data/input.json")
    write(record, "data_synthesis_v2/data/input_en.json")
    found = PalRestate.load(tmp_path, language=language)
    assert len(found.examples) == 2 * len(files)
    assert ("zh" in {example.category for example in found.examples}) == ("input.json" in files)
    assert len({example.id for example in found.examples}) == len(found.examples)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda s: s["logs"].append({"timestamp": "2024-03-20 20:01", "content": "later"}), "log after its dialogue"),
        (lambda s: s.update(topics={}), "no topics"),
        (lambda s: s.update(dialogue_timestamp="soon"), "unreadable date"),
        (lambda s: s.update(dialogue_timestamp="2024-01-01 00:00:00", logs=[]), "samples out of order"),
        (lambda s: s["topics"]["topic-1"]["implicit_needs"].pop(), "number of needs"),
        (lambda s: s["topics"]["topic-1"]["candidate_solutions"].pop(), "number of candidates"),
    ],
)
def test_what_is_odd_is_told_and_coped_with(
    damage: Callable[[Any], Any], kind: str, record: dict[str, Any], write: Callable[..., Path]
) -> None:
    damage(record["u1"]["query"][0])
    report = check("palbench.restate", write(record))
    assert kind in report.kinds
    assert report.ok
    assert report.counts["questions"] >= 1


def test_a_log_after_the_dialogue_is_in_no_history(record: dict[str, Any], write: Callable[..., Path]) -> None:
    record["u1"]["query"][0]["logs"].append({"timestamp": "2024-03-20 20:01", "content": "later"})
    assert not any("later" in _texts(example.history) for example in PalRestate.load(write(record)).examples)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "expected an object with user ids"),
        ({"u1": []}, "u1: is \\[\\], expected an object"),
        ({"u1": {"history": 3, "query": []}}, "u1, field 'history': is 3, expected a valid list"),
        ({"u1": {"history": [], "query": []}}, "holds no examples"),
        (
            {"u1": {"history": [], "query": [{"topics": {"topic-1": {}}}]}},
            "0.topics.topic-1.user_query': is missing",
        ),
        ({"u1": {"history": [{"logs": [{"content": []}]}], "query": []}}, "history.0.logs.0.content': is"),
    ],
)
def test_another_form_is_refused_in_one_line(value: Any, says: str, write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=says) as caught:
        PalRestate.load(write(value))
    assert "\n" not in str(caught.value)
