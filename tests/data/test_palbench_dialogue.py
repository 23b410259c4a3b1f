"""Simulated dialogues: the fixed plan, what each side is shown, and how two dialogues are judged."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler import UserError
from mempiler.data.catalog import benchmark
from mempiler.data.palbench.dialogue import (
    NeedUnderstandingJudge,
    PreferenceUnderstandingJudge,
    SimulatedUser,
    compare,
    converse,
    plan,
)
from mempiler.data.palbench.reader import Persona
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.programs.adapter import adapter
from mempiler.signatures.pal import USER_ACTIONS

from .conftest import AFTER

PERSONA = Persona(profile="a baker", situation="moved", needs="NEEDS", preferences="PREFERENCES")
PLANS = [plan(f"topic {n}") for n in range(200)]


def test_plans_follow_the_transitions_with_two_guesses_two_proposals_and_one_end() -> None:
    for turns in PLANS:
        assert all(reply in AFTER["user"][asked] for asked, reply in turns)
        replies = Counter(reply for _, reply in turns)
        assert (replies["requirement prediction"], replies["solution proposal"]) == (2, 2)
        assert [asked for asked, _ in turns[:3]] == ["topic inquiry", *["requirement confirmation"] * 2]
        assert turns[-1] == ("solution feedback", "feedback response")
    assert plan("topic 1") == plan("topic 1")
    assert any(plan(f"topic {n}") != plan(f"topic {n}", seed=1) for n in range(20))


def test_a_dialogue_runs_to_the_end_of_its_plan_and_the_user_knows_preferences_once_solutions_are_discussed(scripted):
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
        assert ("NEEDS" in text, "PREFERENCES" in text) == (about_needs, not about_needs)
        assert USER_ACTIONS[asked] in text


@pytest.mark.parametrize(
    ("kind", "measure"), [(NeedUnderstandingJudge, "NEEDS"), (PreferenceUnderstandingJudge, "PREFERENCES")]
)
def test_judges_see_their_own_measure_samples_differ_and_equal_dialogues_tie_without_a_call(kind, measure, scripted):
    scores = {"analysis_1": "a", "analysis_2": "b", "comparison": "c", "scores": {"assistant_1": 8, "assistant_2": 3}}
    lm = scripted(lambda *call: scores, cache=True)
    judge = kind(lm, adapter())
    assert compare(judge, PERSONA, "mine", "theirs").own == 5.5
    assert compare(judge, PERSONA, "same", "same").outcome == "tie"
    prompts = [text for _, text in lm.engine.prompts]
    assert len(prompts) == 6
    assert all((measure in text) and ("NEEDS" in text) + ("PREFERENCES" in text) == 1 for text in prompts)


def test_an_unreadable_judgement_is_asked_for_again(scripted: Any) -> None:
    good = {"analysis_1": "a", "analysis_2": "b", "comparison": "c", "scores": {"assistant_1": "7", "assistant_2": 2.6}}
    lm = scripted(lambda kind, text, n: good if n > 2 else "nonsense")
    judge = NeedUnderstandingJudge(lm, dspy.ChatAdapter(use_json_adapter_fallback=False))
    assert judge(PERSONA, "a", "b", 1) == (7, 2.6)
    never = NeedUnderstandingJudge(scripted(lambda *call: "nonsense"), judge._adapter)
    with pytest.raises(AdapterParseError):
        never(PERSONA, "a", "b", 1)


def _set_up(rival: Any = None, **options: Any) -> Any:
    found = benchmark("palbench.dialogue", **options)
    lm = language_model(meter=Meter())
    return found.accompanied(lm, adapter(), rival).bound(lambda kind: kind(lm, adapter())), lm


@pytest.mark.parametrize("logs", [False, True])
def test_the_rival_sees_current_logs_on_demand(logs: bool) -> None:
    seen: dict[str, set[int]] = {"own": set(), "rival": set()}

    def assistant(name: str) -> Any:
        return lambda **query: seen[name].add(len(query.get("recent", ()))) or dspy.Prediction(answer="well")

    found, _ = _set_up(assistant("rival"), against_logs=logs)
    found.answer(assistant("own"), found.examples[0])
    assert seen == {"own": {0}, "rival": {int(logs)}}


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
