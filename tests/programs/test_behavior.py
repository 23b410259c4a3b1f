"""Behaviour prediction: how answers are read, what is shown, and that every baseline reads records."""

from datetime import datetime, timedelta

import dspy
import pytest
from mempiler import Action, Behavior, History, Profile, Turn, build
from mempiler.programs.tasks.behavior import newest
from mempiler.records import estimate_tokens
from mempiler.signatures.behavior import chosen_option

YES_NO = ["Yes", "No"]
STARS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("Yes, though he said no before", YES_NO, "Yes"),
        ("I think no, since yes would surprise", YES_NO, "No"),
        ('[u1:3] user: movie rating; "Ocean 2" (1995), Drama => rated 4', STARS, "4"),
        ("3.5", STARS, "3"),
        ("maybe 3, maybe 4", STARS, None),
    ],
)
def test_an_answer_is_read_as_the_option_it_chooses(text, options, expected):
    assert chosen_option(text, options) == expected


def actions(count, start=1):
    first, kind = datetime(2025, 9, 1, 8), {"scene": "video"}
    done = {n: {"situation": f"title: clip {n}", "action": "liked" if n % 2 else "skipped"} for n in range(30)}
    return [Action(id=f"a{n}", time=first + timedelta(hours=n), **kind, **done[n]) for n in range(start, start + count)]


PROFILE = Profile(id="p", turns=(Turn(id="p", speaker="profile", text="lives in Oslo"),))


@pytest.fixture
def history():
    return History(id="u", items=(PROFILE, Behavior.of("b1", actions(10)), Behavior.of("b2", actions(10, 11))))


@pytest.fixture
def recent():
    return History(id="u:recent", items=(Behavior.of("b3", actions(4, 21)),))


def ids(items):
    return [turn.id for item in items for turn in item.turns]


def test_the_suffix_is_the_newest_records_of_both_and_the_profile(history, recent):
    lines = [line for item in (*history, *recent) for line in item.lines()]
    found = newest([*history, *recent], sum(estimate_tokens(line) + 1 for line in lines[-6:]))
    assert ids(found) == ["p", "a19", "a20", "a21", "a22", "a23", "a24"]
    assert [action.id for action in found[1].actions] == ["a19", "a20"]
    assert found[1].digest != history.items[2].digest
    assert ids(newest([*history, *recent], 10_000)) == ["p", *(f"a{n}" for n in range(1, 25))]
    assert ids(newest([*history, *recent], 0)) == ["p"]


def asked(scripted, method, history, recent, answer="Yes", **config):
    lm = scripted(lambda kind, text, n: {"answer": answer, "summary": "The user likes odd clips."})
    program = build(method, task="behavior-prediction", **config)
    with dspy.context(lm=lm):
        found = program(history=history, recent=recent, question="video; title: clip 25. Like it?", options=YES_NO)
    return found, [text for kind, text in lm.engine.prompts if kind == "answer"][-1]


@pytest.mark.parametrize(
    "method", ["no-memory", "truncation", "full-context", "turn-rag", "session-rag", "recursive-summary"]
)
def test_every_baseline_shows_profile_and_newest_records_with_time_scene_situation_and_action(
    scripted, history, recent, method
):
    found, prompt = asked(scripted, method, history, recent)
    assert found.answer == "Yes"
    assert prompt.count("[p] profile: lives in Oslo") == 1
    line = "[a24] (2 September 2025, Tuesday 08:00) user: video; title: clip 24 => skipped"
    assert prompt.count(line) == 1
    assert ("likes odd clips" in prompt) is (method == "recursive-summary")


@pytest.mark.parametrize(("method", "tokens"), [("truncation", 200), ("full-context", 300)])
def test_no_memory_baselines_show_the_newest_records_within_one_budget(scripted, history, recent, method, tokens):
    program = build(method, task="behavior-prediction", max_tokens=tokens)
    program.task.suffix_tokens = 80
    with dspy.context(lm=scripted(lambda kind, text, n: {"answer": "No"})):
        found = program(history=history, recent=recent, question="Like it?", options=YES_NO)
    suffix = newest([*history, *recent], 80)
    lines = [*(hit.line() for hit in found.context.hits), *(line for item in suffix for line in item.lines())]
    assert sum(estimate_tokens(line) + 1 for line in lines) <= tokens
    shown = [hit.id for hit in found.context.hits] + ids(suffix)[1:]
    # Nothing between the oldest record shown and the question is missing, whether it is in the memory or came since.
    assert shown == [f"a{n}" for n in range(25 - len(shown), 25)]
    assert len(shown) > {200: 5, 300: 8}[tokens]


@pytest.mark.parametrize(("times", "answers", "found"), [(0, 1, "Hard to say."), (2, 3, "Hard to say."), (5, 4, "No")])
def test_an_answer_that_names_no_option_may_be_asked_for_again(scripted, history, recent, times, answers, found):
    lm = scripted(lambda kind, text, n: {"answer": "No" if len(lm.engine.prompts) > 3 else "Hard to say."})
    program = build("truncation", task="behavior-prediction", **{"task.reask": times})
    with dspy.context(lm=lm):
        said = program(history=history, recent=recent, question="Like it?", options=YES_NO)
    assert (said.answer, len(lm.engine.prompts)) == (found, answers)
