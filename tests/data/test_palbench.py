"""PAL-Bench: what a history holds, what each part asks, simulated dialogues, and scores."""

import copy
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from mempiler import UserError
from mempiler.data.catalog import benchmark
from mempiler.data.palbench.benchmark import NeedsJudge, words
from mempiler.data.palbench.dialogue import (
    NeedUnderstandingJudge,
    PalDialogue,
    PreferenceUnderstandingJudge,
    SimulatedUser,
    compare,
    converse,
)
from mempiler.data.palbench.plans import PLANS_FILE, drawn_plan, read_plans
from mempiler.data.palbench.topics import Persona
from mempiler.data.samples import sample as sample_folder
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.errors import DataError
from mempiler.programs.adapter import adapter
from mempiler.records import Logs, Session
from mempiler.signatures.pal import USER_ACTIONS

from .conftest import AFTER
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
    assert texts(second)[len(texts(first)) :] == [
        "help 2?",
        "why 2?",
        "yes 2",
        "so 2",
        "log 3a",
        "log 3b",
    ]


def test_logs_precede_the_dialogue_of_their_session_and_none_after_it_is_in_a_history(
    tmp_path: Path,
) -> None:
    def later(users: Any) -> None:
        users["u1"]["query"][0]["logs"].append(
            {"timestamp": "2024-03-20 20:01", "content": "later"}
        )

    history = load(tmp_path, "palbench.restate", later).examples[-1].history
    assert [type(item) for item in history] == [Logs, Session, Logs, Session, Logs, Session, Logs]
    assert [turn.id for turn in history.items[1].turns] == ["D1:1", "D1:2", "D1:3", "D1:4"]
    assert [turn.speaker for turn in history.items[1].turns] == ["user", "assistant"] * 2
    times = [item.time for item in history]
    assert times == sorted(time for time in times if time)
    assert "later" not in texts(history)


def test_current_logs_are_shown_with_a_selection_if_asked_for(tmp_path: Path) -> None:
    shown = loaded(tmp_path, "select", show_logs=True).examples[0].inputs()
    assert [item.id for item in shown["recent"]] == ["L3"]


@pytest.mark.parametrize(
    ("language", "files"), [(None, ["zh"]), ("zh", ["zh"]), ("en", ["en"]), ("all", ["zh", "en"])]
)
def test_a_folder_holds_both_languages(
    tmp_path: Path, language: str | None, files: list[str]
) -> None:
    chinese = copy.deepcopy(RECORD)
    for sample in chinese["u1"]["query"]:
        sample["topics"]["topic-1"]["requirement"] = "需要休息"
    write(
        tmp_path, {"synthesis/data/input.json": chinese, "synthesis/data_en/input_en.json": RECORD}
    )
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
    parts = [
        {"s_score": 1.0, "valid": 1.0},
        {"s_score": -0.5, "valid": 1.0},
        {"s_score": 0.0, "valid": 0.0},
        {},
    ]
    rows: Any = [SimpleNamespace(parts=each, failure=None if each else "any") for each in parts]
    assert benchmark("palbench.select").scorer.aggregate(rows) == {
        "S-score": 12.5,
        "invalid selections": 1,
    }


def test_points_beyond_the_papers_are_asked_for_again_and_an_empty_restatement_gets_none(
    scripted: Any,
) -> None:
    lm = scripted(lambda kind, text, n: {"score": {"points": 7.5 if n == 1 else 1}})
    topic, judge = benchmark("palbench.restate").examples[0].asked.topic, NeedsJudge(lm, adapter())
    assert judge(topic, "a need")[0] == 1.0
    assert judge(topic, " ")[0] == 0.0
    assert len(lm.engine.prompts) == 2


PERSONA = Persona(profile="a baker", situation="moved", needs="NEEDS", preferences="PREFERENCES")
PLANS = [drawn_plan(f"topic {n}") for n in range(200)]


def test_plans_follow_the_transitions_with_two_guesses_two_proposals_and_one_end() -> None:
    for turns in PLANS:
        assert all(reply in AFTER["user"][asked] for asked, reply in turns)
        replies = Counter(reply for _, reply in turns)
        assert replies["requirement prediction"] == 2
        assert replies["solution proposal"] == 2
        assert [asked for asked, _ in turns[:3]] == [
            "topic inquiry",
            *["requirement confirmation"] * 2,
        ]
        assert turns[-1] == ("solution feedback", "feedback response")
    assert drawn_plan("topic 1") == drawn_plan("topic 1")
    assert any(drawn_plan(f"topic {n}") != drawn_plan(f"topic {n}", seed=1) for n in range(20))


RELEASED = {
    "turn_1": {"user": "<话题询问>", "assistant": "<需求推测>"},
    "turn_2": {"user": "<需求确认>", "assistant": "<方案提议>"},
    "turn_10": {"user": "<方案反馈>", "assistant": "<反馈回应>"},
    "turn_3": {"user": "<方案讨论>", "assistant": "<方案讨论>"},
}
"""A plan as the released file has it, shorter than its own, so that no drawn plan can be mistaken for it."""
RELEASED_ACTIONS = [
    ("topic inquiry", "requirement prediction"),
    ("requirement confirmation", "solution proposal"),
    ("solution discussion", "solution discussion"),
    ("solution feedback", "feedback response"),
]


@pytest.mark.parametrize("beside_the_data", [True, False])
def test_dialogues_follow_the_released_plans_of_their_topics(
    tmp_path: Path, beside_the_data: bool
) -> None:
    data = tmp_path / "data"
    with sample_folder() as samples:
        shutil.copytree(samples / "palset", data)
    examples = benchmark("palbench.dialogue", data).examples
    planned, other = examples[0].asked.id, examples[1].asked.id
    folder = data / "dialogue_evaluation" if beside_the_data else tmp_path / "elsewhere"
    folder.mkdir()
    (folder / PLANS_FILE).write_text(json.dumps({planned: RELEASED}))
    options = {} if beside_the_data else {"plans": str(folder / PLANS_FILE)}
    found = benchmark("palbench.dialogue", data, **options)
    assert [tuple(turn) for turn in found.interaction.plans[planned]] == RELEASED_ACTIONS
    actions: list[str] = []

    def reply(**query: Any) -> dspy.Prediction:
        actions.append(query["action"])
        return dspy.Prediction(answer="well")

    interaction = found.interaction.with_simulated_user(
        language_model(meter=Meter()), adapter(), lambda **_: dspy.Prediction(answer="-")
    )
    interaction.converse(reply, found.examples[0])
    assert actions == [assistant for _, assistant in RELEASED_ACTIONS]
    actions.clear()
    interaction.converse(reply, found.examples[1])
    assert actions == [assistant for _, assistant in drawn_plan(other)]


@pytest.mark.parametrize(
    ("plans", "message"),
    [
        ([], "expected an object with topic ids"),
        ({"a_topic-1": {}}, "a_topic-1: expected turns"),
        ({"a_topic-1": {"turn_1": "x"}}, "a_topic-1, turn_1: expected the actions"),
        (
            {"a_topic-1": {"turn_1": {"user": "<方案提议>", "assistant": "<方案提议>"}}},
            "turn_1: user: '<方案提议>' is no action",
        ),
    ],
)
def test_plans_of_another_form_are_refused_in_one_line(
    tmp_path: Path, plans: Any, message: str
) -> None:
    file = tmp_path / PLANS_FILE
    file.write_text(json.dumps(plans))
    with pytest.raises(DataError, match=message):
        read_plans(file)


def test_a_dialogue_runs_to_the_end_of_its_plan_and_the_user_knows_preferences_once_solutions_are_discussed(
    scripted,
):
    heard: list[dict[str, Any]] = []

    def reply(**query: Any) -> dspy.Prediction:
        heard.append(query)
        return dspy.Prediction(answer=f"reply {len(heard)}\nmore")

    lm = scripted(lambda kind, text, n: {"utterance": f"words {n}"})
    dialogue, last = converse(SimulatedUser(lm, adapter()), reply, PERSONA, PLANS[0], "query?")
    assert [each.action for each in dialogue] == [action for turn in PLANS[0] for action in turn]
    assert [query["action"] for query in heard] == [reply for _, reply in PLANS[0]]
    assert heard[0] == {"question": "words 1", "dialogue": "", "action": "requirement prediction"}
    assert heard[1]["dialogue"] == "user: words 1\nassistant: reply 1 more"
    assert last.answer.startswith(f"reply {len(heard)}")
    for (asked, _), (_, text) in zip(PLANS[0], lm.engine.prompts, strict=True):
        about_needs = asked in ("topic inquiry", "requirement confirmation")
        assert ("NEEDS" in text) == about_needs
        assert ("PREFERENCES" in text) == (not about_needs)
        assert USER_ACTIONS[asked] in text


@pytest.mark.parametrize(
    ("kind", "measure"),
    [(NeedUnderstandingJudge, "NEEDS"), (PreferenceUnderstandingJudge, "PREFERENCES")],
)
def test_judges_see_their_own_measure_samples_differ_and_equal_dialogues_tie_without_a_call(
    kind, measure, scripted
):
    scores = {
        "analysis_1": "a",
        "analysis_2": "b",
        "comparison": "c",
        "scores": {"assistant_1": 8, "assistant_2": 3},
    }
    lm = scripted(lambda *call: scores, cache=True)
    judge = kind(lm, adapter())
    assert compare(judge, PERSONA, "mine", "theirs").own == 5.5
    assert compare(judge, PERSONA, "same", "same").outcome == "tie"
    prompts = [text for _, text in lm.engine.prompts]
    assert len(prompts) == 6
    assert all(
        (measure in text) and ("NEEDS" in text) + ("PREFERENCES" in text) == 1 for text in prompts
    )


def _set_up(rival: Any = None, **options: Any) -> Any:
    found = benchmark("palbench.dialogue", **options)
    lm = language_model(meter=Meter())
    return found.with_simulated_user(lm, adapter(), rival).with_judges(
        lambda kind: kind(lm, adapter())
    ), lm


@pytest.mark.parametrize("logs", [False, True])
def test_the_rival_sees_current_logs_on_demand(logs: bool) -> None:
    seen: dict[str, set[int]] = {"own": set(), "rival": set()}

    def assistant(name: str) -> Any:
        return lambda **query: (
            seen[name].add(len(query.get("recent", ()))) or dspy.Prediction(answer="well")
        )

    found, _ = _set_up(assistant("rival"), against_logs=logs)
    found.answer(assistant("own"), found.examples[0])
    assert seen == {"own": {0}, "rival": {int(logs)}}


@pytest.mark.parametrize(("text", "value"), [("false", False), ("true", True)])
def test_an_option_that_is_a_text_means_what_it_says(text: Any, value: bool) -> None:
    assert PalDialogue.load(against_logs=text).interaction.against_logs is value


def test_wins_ties_and_defeats_are_counted() -> None:
    found, _ = _set_up()
    rows: list[Any] = [
        SimpleNamespace(parts={"requirement": r, "preference": p}, failure=None)
        for r, p in ((1.0, 0.0), (1.0, 0.5), (0.0, 0.5))
    ]
    rows.append(SimpleNamespace(parts={}, failure="any"))
    assert found.scorer.aggregate(rows) == {
        **{"requirement WIN": 2, "requirement TIE": 0, "requirement LOSE": 1},
        **{"preference WIN": 0, "preference TIE": 2, "preference LOSE": 1},
    }


def test_without_user_rival_or_judge_a_line_says_so() -> None:
    found, (full, _) = benchmark("palbench.dialogue"), _set_up()
    assert found.scorer.judge_hash == full.scorer.judge_hash
    example = found.examples[0]
    for each in (found, full):
        with pytest.raises(UserError, match="play the user and a rival"):
            each.answer(lambda **query: dspy.Prediction(answer=""), example)
    for each, problem in ((found, "--judge-lm"), (full, "mempiler evaluate")):
        with pytest.raises(UserError, match=problem):
            each.score(example, dspy.Prediction(answer="a"))


def test_the_hash_of_the_judges_covers_both_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = benchmark("palbench.dialogue").scorer.judge_hash
    changed = PreferenceUnderstandingJudge.signature.with_instructions("Judge.")
    monkeypatch.setattr(PreferenceUnderstandingJudge, "signature", changed)
    assert benchmark("palbench.dialogue").scorer.judge_hash != before
