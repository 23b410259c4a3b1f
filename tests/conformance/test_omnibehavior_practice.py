"""OmniBehavior and PraMem: what their released code gives for practice, labels and records that are left out."""

import json
import random
from datetime import datetime
from typing import Any

import dspy
import pytest
from mempiler.data.omnibehavior.benchmark import OmniBehavior
from mempiler.data.omnibehavior.periods import Periods, seed_offset
from mempiler.data.omnibehavior.records import (
    OPEN,
    QUESTIONS,
    gold,
    is_high_value,
    is_informative,
    says_enough,
    was_seen,
)
from mempiler.data.omnibehavior.text import reaction
from mempiler.programs.catalog import build
from mempiler.programs.pramem.adjustment import apply_changes
from mempiler.programs.pramem.memory import ExperienceMemory, Proposal, short_suffix
from mempiler.programs.pramem.samples import (
    RECENCY_DRAWS,
    SHUFFLE_SEED,
    Sample,
    draw_samples,
    shuffle_as_released,
)
from mempiler.programs.pramem.settings import PracticeSettings, PraMemSettings
from mempiler.programs.tasks.behavior import newest_actions
from mempiler.records import Action, Behavior, estimate_tokens
from mempiler.runs.papers.paper import read_paper
from mempiler.signatures.pramem import (
    ExperienceChange,
    Perturbation,
    PractiseWithExperience,
    ReflectOnPractice,
)


def writer(**settings: Any) -> Any:
    return build("pramem", task="behavior-prediction", **settings).method.writer


def actions(count: int, **fields: Any) -> list[Action]:
    return [
        Action(id=f"a{n}", scene="video", situation=f"clip {n}", action="liked", **fields)
        for n in range(count)
    ]


def places(found: Any) -> list[int]:
    return [int(action.id[1:]) for action in found]


SAMPLE = Sample(round=1, target=actions(9)[8], past=tuple(actions(8)))


def loaded(tmp_path: Any, *rows: dict[str, Any]) -> list[Action]:
    """The history that OmniBehavior makes of records before the first question."""
    asked = {
        "type": "视频浏览",
        "timestamp": "2025-10-09 10:00:00",
        "context": {"caption": "x"},
        "action": [],
    }
    before = [{"timestamp": f"2025-09-0{n} 10:00:00", **row} for n, row in enumerate(rows, 1)]
    path = tmp_path / "u.json"
    path.write_text(
        json.dumps({"u": {"user_profile": "", "action_history": [*before, asked]}}),
        encoding="utf-8",
    )
    return [
        action
        for item in OmniBehavior.load(path).examples[0].history.items
        for action in item.actions
    ]


UNMENTIONED = "what is not mentioned did not happen. So answer No to a question if you expect that the user does not react"


@pytest.mark.vectors("omnibehavior_practice", "ask-*")
def test_practice_asks_the_released_questions_and_its_answer_states_the_labels(
    case, agrees, tmp_path
):
    record = case["input"]["record"]
    found = loaded(tmp_path, {**record, "timestamp": "2025-09-01 10:00:00"})
    sample = Sample(round=1, target=found[0], past=()) if found else None
    asked = gold(record) if sample and sample.target.questions else {}
    shown = sample is not None and all(
        question in sample.situation for question in sample.target.questions
    )
    rule = " ".join(PractiseWithExperience.instructions.split())
    of_reflection = str(ReflectOnPractice.input_fields["practised_record"])
    nothing = reaction({**record, "action": []})
    parts = [reaction({**record, "action": [one]}) != nothing for one in record["action"]]
    ours = {
        "asked": list(asked),
        "one_task_for_all_questions": shown,
        "unanswered_means_no": UNMENTIONED in rule
        and "No for whatever the record does not mention" in of_reflection,
        "reaction_parts": ["says_yes" if part else "silent" for part in parts],
        "gold_yes": [field for field, value in asked.items() if field in QUESTIONS and value],
    }
    # What is not said means No, so that saying No and saying nothing are the same.
    theirs = {key: ["silent" if part == "says_no" else part for part in value] if key == "reaction_parts" else value
              for key, value in case["expected"].items()}  # fmt: skip
    agrees(ours, theirs)


@pytest.mark.vectors("omnibehavior_practice", "tokens-*")
def test_tokens_are_estimated_as_released(case, agrees):
    agrees(estimate_tokens(case["input"]["text"]))


SCALE = 20
"""A line of ours has an id and a speaker: sizes and budgets are made larger alike."""


def sized(n: int, tokens: int) -> Action:
    """A record whose line takes so many tokens, with the one that separates lines."""
    made = (
        Action(id=f"a{n}", scene="v", situation="", action="x" * k)
        for k in range(4 * tokens, 0, -1)
    )
    return next(action for action in made if estimate_tokens(action.turn().line()) == tokens - 1)


@pytest.mark.vectors("omnibehavior_practice", "window-[01]*")
def test_the_newest_records_that_fit_are_shown_up_to_the_first_that_does_not(case, agrees):
    sizes, budget = case["input"]["sizes_oldest_first"], case["input"]["budget"] * SCALE
    records = [sized(n, size * SCALE) for n, size in enumerate(sizes)]
    used = places(short_suffix(records, budget))
    in_answers = newest_actions([Behavior.from_actions("b", records)], budget)
    assert [place for item in in_answers for place in places(item.actions)] == used
    agrees({"used": used, "tokens": sum(sizes[place] for place in used)})


@pytest.mark.vectors("omnibehavior_practice", "window-filtered")
def test_records_that_nobody_saw_are_in_no_history(case, agrees, tmp_path):
    sizes = case["input"]["sizes_oldest_first"]
    rows = [
        {
            "type": "视频浏览",
            "context": {"caption": str(n)},
            "action": [{"type": "watch", "play_duration": 5}],
        }
        for n in range(len(sizes))
    ]
    for n in case["input"]["zero_second_watch_at"]:
        rows[n]["action"] = [{"type": "watch", "play_duration": 0}]
    used = [int(action.situation.rpartition(" ")[2]) for action in loaded(tmp_path, *rows)]
    agrees({"used": used, "tokens": sum(sizes[place] for place in used)})


@pytest.mark.vectors("omnibehavior_practice", "window-days-*")
def test_no_window_of_days_cuts_a_history(case, agrees):
    times = [datetime.fromisoformat(time) for time in case["input"]["times"]]
    records = [
        action.model_copy(update={"time": times[n]}) for n, action in enumerate(actions(len(times)))
    ]
    agrees({"used": places(short_suffix(records, 1000))})


@pytest.mark.vectors("omnibehavior_practice", "draw-*")
def test_drawing_by_recency_draws_the_released_records(case, agrees):
    given, drawn = case["input"], case["expected"]["drawn"]
    pool = actions(given["base_history"] + given["test_indices"][0])
    for place in given["insufficient_records"]:
        pool[place] = pool[place].model_copy(update={"questions": ()})
    count = given["draws"]
    settings = PracticeSettings(
        rounds=count, weighting="recency", min_history=given["min_history"], seed=given["seed"]
    )
    found = draw_samples(ExperienceMemory().with_records(pool), settings, recency_draws=count)
    # Released, the draw is shuffled in a later step, which has cases of its own.
    random.Random(1024).shuffle(drawn := list(drawn))
    agrees(places(sample.target for sample in found), drawn)


@pytest.mark.vectors("omnibehavior_practice", "shuffle-*")
def test_drawn_records_are_practised_in_the_released_order(case, agrees):
    agrees(shuffle_as_released(range(case["input"]["items"])))


@pytest.mark.vectors("omnibehavior_practice", "sizes-released")
def test_settings_are_the_released_ones(case, agrees):
    of_the_paper = read_paper("pramem").variants["PraMem"].settings
    ours = PraMemSettings.model_validate(dict(of_the_paper)).model_dump()
    found = {
        "draws_per_user": RECENCY_DRAWS,
        "min_history_len": ours["min_history"],
        "seed": ours["seed"],
        "shuffle_seed": SHUFFLE_SEED,
        # By the paper it is the k of predictions, which `reproduce` sets: 8,000.
        "history_tokens": PraMemSettings.model_validate({}).practice_tokens,
        "rounds": ours["rounds"],
        "review_interval": ours["adjust_every"],
        "perturbations": ours["perturbations"],
        "virtual_scenes": ours["virtual_scenes"],
        "options": ours["virtual_scenes"] + 1,
        "detail_chars": ours["scene_chars"],
    }
    # Defaults of inner functions, which a run of theirs does not use, have no counterpart.
    agrees(found, {name: value for name, value in case["expected"].items() if name in found})


@pytest.mark.vectors("omnibehavior_practice", "practice-history-*")
def test_a_sample_shows_what_came_before_its_target(case, agrees):
    given = case["input"]
    pool = ExperienceMemory().with_records(actions(given["base_history"] + given["test_period"]))
    target = given["drawn_position_in_pool"]
    sample = next(
        one
        for one in draw_samples(pool, PracticeSettings(rounds=100))
        if places([one.target]) == [target]
    )
    seen = places(sample.past)
    ours = {"history_seen": seen, "target": target, "sees_target": target in seen}
    assert seen == list(range(target))
    agrees({**ours, "sees_later": [place for place in seen if place > target]})


@pytest.mark.vectors("omnibehavior_practice", "seed-offset-*")
def test_a_users_seed_is_the_released_one(case, agrees):
    agrees(seed_offset(case["input"]["user_id"]))


HIGH = {"视频浏览": "like", "直播间": "send_gift", "商城购物": "purchase", "广告推荐": "conversion"}


@pytest.mark.vectors("omnibehavior_practice", "sample-*")
def test_the_records_that_are_asked_are_the_released_draw(case, agrees):
    given = case["input"]
    rows = []
    for n in range(given["candidates"]):
        scene = given["scenes_in_turn"][n % len(given["scenes_in_turn"])]
        done = [{"type": HIGH[scene]}] if n in given["high_value_at"] else []
        rows.append({"type": scene, "context": {"caption": "x", "live_title": "x"}, "action": done})
    assert given["buckets"] == 10
    agrees(
        Periods(test_actions=given["wanted"], seed=given["seed"], offsets={"u": 0}).draw("u", rows)
    )


@pytest.mark.vectors("omnibehavior_practice", "periods-*")
def test_periods_are_cut_as_released(case, agrees):
    given = case["input"]
    rows = [
        {"type": "视频浏览", "timestamp": time, "context": {"caption": "x"}}
        for time in given["timestamps"]
    ]
    periods = Periods(tuple(given["history"]), tuple(given["test"]))
    before, since = periods.cut(rows)
    found = {"history": before, "test_period": since}
    ours = {name: [rows.index(row) for row in part] for name, part in found.items()}
    agrees({**ours, "asked": periods.draw("u", since)})


@pytest.mark.vectors("omnibehavior_practice", "proposals-*")
def test_a_reply_of_the_released_layout_holds_the_proposals_that_ours_reads(case, agrees, scripted):
    trial = {
        "useful_patterns": [],
        "useful_alerts": [],
        "reasoning": "-",
        "predicted_action": "liked",
    }
    lm = scripted(
        lambda kind, text, n: trial if kind == "useful_patterns" else case["input"]["reply"]
    )
    with dspy.context(lm=lm):
        found = writer().try_and_reflect(ExperienceMemory(), SAMPLE)
    agrees([proposal.content for proposal in found.proposals])


PLAN = Perturbation(direction="all reversed")


def verdicts(
    scripted: Any,
    names: list[str],
    materials: tuple[Any, Any],
    replies: dict[str, str],
    **settings: Any,
) -> list[str]:
    """The contents of the proposals that pass a review."""
    proposals = [
        Proposal(id="", action="add pattern", content=name, sources=("a8",)) for name in names
    ]
    with dspy.context(lm=scripted(lambda kind, text, n: {kind: replies[kind]})):
        result = writer(**settings).self_review(SAMPLE, proposals, *materials)
    return [proposal.content for proposal in result.proposals]


def translated(reply: str) -> str:
    """A reply with our names of fields and proposals."""
    names = {
        '"proposal_idx"': '"proposal"',
        '"generalization_passed"': '"general"',
        '"is_sensitive"': '"sensitive"',
    }
    for theirs, ours in names.items():
        reply = reply.replace(theirs, ours)
    for n in range(9):
        for form in (f": {n}", f":{n}", f': "{n}"'):
            reply = reply.replace(f'"proposal"{form}', f'"proposal": "r{n + 1}"')
    return reply


@pytest.mark.vectors("omnibehavior_practice", "generalisation-*", "groundedness-*")
def test_a_check_reads_its_verdicts_as_released(case, agrees, scripted):
    names = [str(n) for n in range(case["input"]["proposals"])]
    grounded = case["id"].startswith("groundedness")
    kind, off = ("groundedness", "generalizability") if grounded else ("generality", "groundedness")
    replies = {kind: translated(case["input"]["reply"])}
    passed = verdicts(
        scripted, names, ((PLAN,), ("another",)), replies, **{off: False}, blind=False
    )
    agrees([name in passed for name in names])


@pytest.mark.vectors("omnibehavior_practice", "verify-*")
def test_both_checks_let_through_what_they_let_through_as_released(case, agrees, scripted):
    given = case["input"]
    scenes = (
        tuple(f"video; clip {n}" for n in range(20, 20 + given["virtual_scenes"]))
        if given["scene_found"]
        else ()
    )
    plans = (PLAN,) * given["perturbations"] if given["history_found"] else ()

    def reply(key: str, values: list[bool]) -> str:
        return json.dumps([{"proposal": f"r{n}", key: value} for n, value in enumerate(values, 1)])

    replies = {
        "groundedness": reply("sensitive", given["sensitive"]),
        "generality": reply("general", given["generalises"]),
    }
    agrees(verdicts(scripted, given["proposals"], (plans, scenes), replies, blind=False))


@pytest.mark.vectors("omnibehavior_practice", "review-rounds-*")
def test_experience_is_adjusted_after_the_released_rounds(case, agrees, scripted):
    given = case["input"]
    practising = writer(
        rounds=given["rounds"],
        adjust_every=given["interval"],
        groundedness=False,
        generalizability=False,
    )
    memory = ExperienceMemory().with_records(
        actions(given["items"] + practising.settings.min_history)
    )
    with dspy.context(lm=scripted(lambda kind, text, n: "no")):
        found = practising.finalize(memory).memory
    agrees({"reviewed_after_round": [round for round in found.adjusted if round]})


@pytest.mark.vectors("omnibehavior_practice", "review-[!r]*")
def test_a_reply_that_rewrites_the_lists_is_read_as_released(case, agrees, scripted):
    before = case["input"]["memory_before"]
    memory = ExperienceMemory()
    for text in before["user_exp"]:
        memory = memory.with_initial_entry("pattern", text)
    for text in before["model_exp"]:
        memory = memory.with_initial_entry("alert", text)
    pool = [
        Proposal(id=f"p-{n}", action="add pattern", content=text)
        for n, text in enumerate(before["proposal"])
    ]
    with dspy.context(lm=scripted(lambda kind, text, n: case["input"]["reply"])):
        found = writer(needed=1).adjust_experience(memory.replace(pool=tuple(pool)))
    ours = {
        "user_exp": [part.text for part in found.patterns],
        "model_exp": [part.text for part in found.alerts],
    }
    agrees({**ours, "proposal": [proposal.content for proposal in found.pool]})


@pytest.mark.vectors("omnibehavior_practice", "adoption-*")
def test_an_entry_changes_with_the_released_support(case, agrees):
    pool = [
        Proposal(id=f"p-{n}", action="add pattern", content="x", sources=(f"a{n}",))
        for n in range(case["input"]["supporting_proposals"])
    ]
    memory = (
        ExperienceMemory().with_initial_entry("pattern", "Likes jazz").replace(pool=tuple(pool))
    )
    cited = tuple(proposal.id for proposal in pool)
    add = ExperienceChange(action="add pattern", text="Likes rock", proposal_ids=list(cited))
    remove = ExperienceChange(action="remove", experience_id="pattern-1", proposal_ids=list(cited))
    fates = [
        "stays"
        if apply_changes(memory, [change], PracticeSettings()).patterns == memory.patterns
        else "may_change"
        for change in (add, remove)
    ]
    ours = {
        "addition_or_modification": fates[0],
        "deletion_or_demotion": fates[1],
        "enforced_by_code": True,
    }
    agrees(ours)


def judged(record: dict[str, Any]) -> dict[str, bool]:
    return {
        "filtered": not was_seen(record),
        "enough_context_preparation": says_enough(record),
        "enough_context_practice": says_enough(record),
        "practice_candidate": is_informative(record),
        "high_value": is_high_value(record),
    }


@pytest.mark.vectors("omnibehavior_filter", "[!h]*")
def test_a_record_is_kept_asked_and_practised_as_released(case, agrees):
    agrees(judged(case["input"]["record"]))


@pytest.mark.vectors("omnibehavior_filter", "high-*")
def test_kinds_of_high_value_are_the_released_ones(case, agrees):
    agrees({"high_value": is_high_value(case["input"]["record"])})


def open_field(field: str, value: Any) -> dict[str, Any]:
    return {
        "field": field,
        "type": "text" if isinstance(value, str) else "continuous",
        "true_value": value,
    }


@pytest.mark.vectors(
    "omnibehavior_labels",
    "v*",
    "l-*",
    "a-*",
    "s-*",
    "q-*",
    "c-*",
    "no-type",
    "en-*",
    "movie-rating",
)
def test_every_field_has_the_released_label(case, agrees):
    values = gold(case["input"]["record"])
    yes_or_no = {field: int(value) for field, value in values.items() if field in QUESTIONS}
    others = [open_field(field, value) for field, value in values.items() if field in OPEN]
    ours = {"binary": yes_or_no, "other": others}
    wanted = {"field": None, "label": None, **case["expected"]}
    field = wanted["field"]
    agrees({**ours, "field": field, "label": yes_or_no.get(field)}, wanted)


@pytest.mark.vectors("omnibehavior_labels", "scene-*")
def test_every_scene_asks_the_released_fields_in_their_order(case, agrees):
    asked = list(gold(case["input"]["record"]))
    agrees(
        {
            "binary_fields": [f for f in asked if f in QUESTIONS],
            "other_fields": [f for f in asked if f in OPEN],
        }
    )
