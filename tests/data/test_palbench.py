"""PAL-Set's form and PAL-Bench's single turns: what a history holds, what each part asks, files, and scores."""

import copy
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.palbench.benchmark import NeedsJudge, words
from mempiler.programs.adapter import adapter
from mempiler.records import Logs, Session

from .forms import FORMS, load, write

PARTS = ("restate", "generate", "select", "dialogue")
RECORD = FORMS["palbench.restate"]["input.json"]


def texts(history: Any) -> list[str]:
    return [turn.text for item in history for turn in item.turns]


def loaded(folder: Path, part: str, **options: Any) -> Any:
    return benchmark(f"palbench.{part}", write(folder, FORMS["palbench.restate"]), **options)


@pytest.mark.parametrize("part", PARTS)
def test_no_answer_sees_its_own_dialogue_and_later_ones_see_it(tmp_path: Path, part: str) -> None:
    first, second = (example.history for example in loaded(tmp_path, part).examples)
    words = ("log {}a", "log {}b", "help {}?", "why {}?", "yes {}", "so {}")
    before = [word.format(n) for n in (0, 1) for word in words]
    assert texts(first) == [*before, "log 2a", "log 2b"]
    assert second.prefixes[: len(first)] == first.prefixes
    assert texts(second)[len(texts(first)) :] == ["help 2?", "why 2?", "yes 2", "so 2", "log 3a", "log 3b"]


def test_logs_precede_the_dialogue_of_their_session_and_none_after_it_is_in_a_history(tmp_path: Path) -> None:
    def later(users: Any) -> None:
        users["u1"]["query"][0]["logs"].append({"timestamp": "2024-03-20 20:01", "content": "later"})

    history = load(tmp_path, "palbench.restate", later).examples[-1].history
    assert [type(item) for item in history] == [Logs, Session, Logs, Session, Logs, Session, Logs]
    assert [turn.id for turn in history.items[1].turns] == ["D1:1", "D1:2", "D1:3", "D1:4"]
    assert [turn.speaker for turn in history.items[1].turns] == ["user", "assistant"] * 2
    times = [item.time for item in history]
    assert times == sorted(time for time in times if time)
    assert "later" not in texts(history)


def test_queries_and_golds_of_the_parts(tmp_path: Path) -> None:
    restate, generate, select, dialogue = (loaded(tmp_path, part).examples[0] for part in PARTS)
    assert (restate.question, restate.answer) == ("query 2", "requirement 2")
    assert (generate.question, generate.answer) == ("requirement 2", "liked 2a")
    assert (select.question, select.answer) == ("requirement 2", ["S7", "S8"])
    assert select.options[0] == "S1: hated 2a"
    assert (dialogue.question, dialogue.answer) == ("query 2", "requirement 2")
    assert {"requirement 2", "liked 2a"}.isdisjoint(map(str, dialogue.inputs().toDict().values()))
    assert [each.focus for each in (restate, generate, select, dialogue)] == [("L3:2",), (), (), ("L3:2",)]
    assert "recent" not in select.inputs()
    shown = loaded(tmp_path, "select", show_logs=True).examples[0].inputs()
    assert [item.id for item in shown["recent"]] == ["L3"]


def test_side_files_in_any_folder_give_the_persona(tmp_path: Path) -> None:
    first, second = (example.asked.persona for example in load(tmp_path, "palbench.restate").examples)
    assert first.profile.splitlines() == ["gender: f", "personality: Openness low"]
    assert (first.situation, "noise" in first.preferences, "elsewhere" in first.needs) == ("moved", True, True)
    assert (second.situation, "need 3b" in second.needs, "liked 3a" in second.preferences) == ("", True, True)


@pytest.mark.parametrize(("language", "files"), [(None, ["zh"]), ("zh", ["zh"]), ("en", ["en"]), ("all", ["zh", "en"])])
def test_a_folder_holds_both_languages(tmp_path: Path, language: str | None, files: list[str]) -> None:
    chinese = copy.deepcopy(RECORD)
    for sample in chinese["u1"]["query"]:
        sample["topics"]["topic-1"]["requirement"] = "需要休息"
    write(tmp_path, {"synthesis/data/input.json": chinese, "synthesis/data_en/input_en.json": RECORD})
    found = benchmark("palbench.restate", tmp_path, language=language).examples
    assert sorted({example.category for example in found}, reverse=True) == files
    assert len({example.id for example in found}) == len(found)


def test_a_long_run_of_one_sign_is_cut_at_once() -> None:
    words("火")
    started = time.process_time()
    assert "".join(words("火" * 60_000)) == "火" * 60_000
    # 12 s before: jieba takes the square of the length.
    assert time.process_time() - started < 3


def test_the_papers_column_is_a_mean_over_all_topics_failed_ones_included() -> None:
    parts = [{"s_score": 1.0, "valid": 1.0}, {"s_score": -0.5, "valid": 1.0}, {"s_score": 0.0, "valid": 0.0}, {}]
    rows: Any = [SimpleNamespace(parts=each, failure=None if each else "any") for each in parts]
    assert benchmark("palbench.select").scorer.aggregate(rows) == {"S-score": 12.5, "invalid selections": 1}


def test_points_beyond_the_papers_are_asked_for_again_and_an_empty_restatement_gets_none(scripted: Any) -> None:
    lm = scripted(lambda kind, text, n: {"score": {"points": 7.5 if n == 1 else 1}})
    topic, judge = benchmark("palbench.restate").examples[0].asked.topic, NeedsJudge(lm, adapter())
    assert (judge(topic, "a need")[0], judge(topic, " ")[0], len(lm.engine.prompts)) == (1.0, 0.0, 2)
