"""PraMem with a scripted model: samples, practice, reviews, answers, ablations; consensus as code checks it."""

import json
import re
from typing import get_args

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Action, UserError, build
from mempiler.memory.edits import Amendment, Amendments
from mempiler.programs.pramem import writer as pramem_writer
from mempiler.programs.pramem.adjustment import adopt_all_proposals, apply_changes
from mempiler.programs.pramem.memory import (
    COMMON_BIASES,
    Experience,
    ExperienceMemory,
    Proposal,
    RoundExperience,
)
from mempiler.programs.pramem.reader import BLOCKS
from mempiler.programs.pramem.samples import draw_samples
from mempiler.programs.pramem.settings import PracticeSettings
from mempiler.programs.pramem.writer import PracticeWriter
from mempiler.programs.writing import finalize_memory
from mempiler.records import Behavior, Query
from mempiler.signatures.pramem import AdjustExperience, Adjustment, ExperienceChange

from .conftest import behavior, practice_script, section

QUESTION = {"question": "video; a clip. Does the user like it?", "options": ["Yes", "No"]}


def pramem(**settings):
    return build(
        "pramem", task="behavior-prediction", **{"rounds": 5, "min_history": 5, **settings}
    )


def records(memory):
    """The practised records, in the order of their rounds: some proposal of each is in the pool."""
    return list(dict.fromkeys(proposal.record for proposal in memory.pool))


def test_a_run_tries_reflects_reviews_and_adjusts_every_five_rounds(practised):
    found = practised(rounds=10)
    memory = found.memory
    per_round = (
        "useful_patterns",
        "tasks",
        "plans",
        "groundedness",
        "virtual_scenes",
        "scene_choices",
    )
    assert found.calls == {**dict.fromkeys(per_round, 10), "decisions": 2}
    assert sorted({proposal.round for proposal in memory.pool}) == list(range(1, 11))
    assert memory.counts == {"pooled": 30, "added": 2}
    assert memory.adjusted == (0, 5, 10)
    assert [part.text for part in memory.patterns] == ["Ann, 34, nurse", "agreed p-1", "agreed p-2"]
    assert memory.practised == 30
    assert memory.waiting == 0
    assert memory.rounds == 10


def test_rounds_between_two_adjustments_see_the_same_experience_in_whatever_order_they_run(
    practised, monkeypatch
):
    together = practised(rounds=10, samples=2).memory
    monkeypatch.setattr(pramem_writer, "gather", lambda calls: [call() for call in calls])
    assert practised(rounds=10, samples=2).memory == together
    shown = practised(rounds=10).shown("useful_patterns", "patterns")
    assert ["agreed p-1" in patterns for patterns in shown] == [False] * 5 + [True] * 5
    assert "agreed p-2" not in "".join(shown)
    with dspy.context(lm=None):
        assert finalize_memory(pramem().method.writer, together) == together


def test_a_trial_sees_profile_and_records_before_its_target_and_reflection_its_thinking(practised):
    thought = {
        "useful_patterns": ["nurse"],
        "useful_alerts": ["mind"],
        "reasoning": "so",
        "predicted_action": "x",
    }
    found = practised({"useful_patterns": thought}, rounds=1)
    n = int(records(found.memory)[0][1:])
    lines = found.shown("useful_patterns", "recent_records")[0].splitlines()
    assert lines[0] == "[profile:1] profile: Ann, 34, nurse"
    assert [line.split("]")[0].strip("[") for line in lines[1:]] == [f"a{m}" for m in range(1, n)]
    assert found.shown("useful_patterns", "situation")[0].endswith(f"user: video; situation-{n}-x")
    assert f"action-{n}-x" not in found.texts("useful_patterns")[0]
    assert found.shown("tasks", "thinking") == ["nurse\nmind\nso"]
    shown = [found.shown("tasks", f"{kind}_experiences")[0] for kind in ("pattern", "alert")]
    assert [["Ann, 34, nurse" in part, COMMON_BIASES[0] in part] for part in shown] == [
        [True, False],
        [False, True],
    ]


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("useful_patterns", {"failed": 10}),
        ("tasks", {"failed": 10}),
        ("plans", {"malformed": 30}),
        ("scene_choices", {"malformed": 30}),
        ("decisions", {"pooled": 30, "unreadable adjustments": 2}),
    ],
)
def test_an_unreadable_answer_costs_its_round_and_is_counted(practised, kind, counts):
    node = practised({kind: "no"}, rounds=10)
    assert node.memory.counts == counts
    assert len(node.failures) == (2 if kind == "decisions" else 10)
    assert [part.text for part in node.memory.patterns] == ["Ann, 34, nurse"]
    assert node.memory.waiting == 0


def test_proposals_beyond_n_about_unknown_entries_or_without_content_are_invalid(practised):
    drafts = [
        {
            "action": "modify",
            "experience_id": "pattern-1",
            "content": "is 35 now",
            "record_ids": "[a1]",
        },
        {"action": "Remove Existing Experience", "experience_id": "alert-2", "content": None},
        {"action": "modify", "experience_id": "pattern-9", "content": "x"},
        {"action": "add pattern", "content": " "},
        {"action": "add pattern", "content": "one too many"},
    ]
    memory = practised({"tasks": {"tasks": [], "proposals": drafts}}, rounds=1, proposals=4).memory
    assert memory.counts == {"invalid": 3, "pooled": 2}
    target = records(memory)[0]
    assert [(p.action, p.target, p.sources) for p in memory.pool] == [
        ("modify", "pattern-1", (target, "a1")),
        ("remove", "alert-2", (target,)),
    ]


def test_nothing_is_asked_of_a_pool_that_did_not_grow(practised):
    found = practised({"tasks": {"tasks": [], "proposals": []}})
    assert found.calls["decisions"] == found.calls["groundedness"] == 0
    assert found.memory.rounds == 5


def verdicts(field, key, values):
    """The answer of a review, as a change of its script."""
    rows = [
        {"proposal": f"r{n}", key: value} for n, value in enumerate(values, 1) if value != "missing"
    ]
    return {field: {field: rows}}


@pytest.mark.parametrize(
    ("review", "said", "kept", "counts"),
    [
        ("groundedness", (True, False, "Yes"), ["one", "three"], {"pooled": 2, "ungrounded": 1}),
        ("groundedness", (True, "missing", True), ["one", "three"], {"pooled": 2, "malformed": 1}),
        ("groundedness", (True, "perhaps", None), ["one"], {"pooled": 1, "malformed": 2}),
        ("generality", (True, False, True), ["one", "three"], {"pooled": 2, "specific": 1}),
        (
            "generality",
            (0.5, "no", "true"),
            ["three"],
            {"pooled": 1, "malformed": 1, "specific": 1},
        ),
    ],
)
def test_a_review_lets_through_what_has_a_clear_verdict(practised, review, said, kept, counts):
    key = {"groundedness": "sensitive", "generality": "general"}[review]
    memory = practised(verdicts(review, key, said), rounds=1, needed=9, blind=False).memory
    assert [p.content.split()[0] for p in memory.pool] == kept
    assert memory.counts == counts
    # One proposal with a verdict is enough: the record needs no other try.
    assert memory.failed_items == ()


def test_a_record_of_which_no_proposal_could_be_judged_is_tried_again(practised):
    memory = practised(
        verdicts("groundedness", "sensitive", ("perhaps", None, "missing")), rounds=1
    ).memory
    assert memory.counts == {"malformed": 3}
    assert len(memory.failed_items) == 1


@pytest.mark.parametrize(
    ("failed_record", "shown_records"),
    [
        ("a19", ["a17", "a18"]),
        ("a2", []),  # The memory has dropped it: all records that are left came later.
    ],
)
def test_a_record_that_is_practised_on_again_is_shown_no_later_record(
    scripted, failed_record, shown_records
):
    practised_memory = memory(20).mark_practised(max_tokens=60)
    assert [record.id for record in practised_memory.records] == ["a17", "a18", "a19", "a20"]
    failed_item = Behavior.from_actions("failed", actions(1, start=number(failed_record)))
    writer = PracticeWriter(PracticeSettings(practice_tokens=60))
    lm = scripted(practice_script())
    with dspy.context(lm=lm):
        writer.update_with_part(practised_memory, failed_item)

    (trial,) = [text for kind, text in lm.engine.prompts if kind == "useful_patterns"]
    lines = section(trial, "recent_records").splitlines()
    assert [line.split("]")[0].strip("[") for line in lines] == shown_records


def test_generality_is_asked_of_what_is_grounded_alone_with_scenes_cut_to_their_length(practised):
    grounded = verdicts("groundedness", "sensitive", (False, True, False))
    found = practised(grounded, rounds=1, scene_chars=8, blind=False)
    (shown,) = found.shown("generality", "proposals")
    assert "two of" in shown
    assert "one of" not in shown
    assert found.shown("virtual_scenes", "situation")[0].splitlines()[0] == "video; s..."
    assert found.shown("generality", "candidates")[0].startswith("A. video; s...\n")


def scenes_of(text):
    """The scenes that a blind review is shown, by letter."""
    return dict(line.split(". ", 1) for line in section(text, "candidates").splitlines())


def test_a_blind_review_is_shown_the_scenes_shuffled_and_not_told_the_true_one(practised):
    found = practised(rounds=10)
    places = []
    for text in found.texts("scene_choices"):
        scenes = list(scenes_of(text).values())
        (true,) = [scene for scene in scenes if "situation-" in scene]
        places.append(scenes.index(true))
        assert sorted(scenes) == sorted([true, *(f"video; virtual {n}" for n in range(1, 8))])
    assert len(set(places)) > 3
    shown = sorted(found.shown("scene_choices", "candidates"))
    assert sorted(practised(rounds=10).shown("scene_choices", "candidates")) == shown


@pytest.mark.parametrize(
    ("said", "kept", "counts"),
    [
        (("several", "{true}", "{other}"), ["one", "three"], {"pooled": 2, "specific": 1}),
        (
            ("Situation {true}", "[{other}]", "Several."),
            ["two", "three"],
            {"pooled": 2, "specific": 1},
        ),
        (("Z", "none", "perhaps {other}"), [], {"pooled": 0, "malformed": 3}),
    ],
)
def test_a_proposal_that_singles_out_the_true_scene_is_too_specific(practised, said, kept, counts):
    def choose(text, n):
        scenes = scenes_of(text)
        true = next(letter for letter, scene in scenes.items() if "situation-" in scene)
        other = next(letter for letter in scenes if letter != true)
        letters = [each and each.format(true=true, other=other) for each in said]
        return {
            "scene_choices": [
                {"proposal": f"r{n}", "situation": each} for n, each in enumerate(letters, 1)
            ]
        }

    memory = practised({"scene_choices": choose}, rounds=1, needed=9).memory
    assert [p.content.split()[0] for p in memory.pool] == kept
    assert memory.counts == {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("two_step", [False, True])
def test_the_answer_sees_experience_and_newest_records_and_no_proposal(scripted, two_step):
    lm, program = scripted(practice_script()), pramem(two_step=two_step)
    with dspy.context(lm=lm):
        found = program(history=behavior(), recent=behavior(40).items[-1:], **QUESTION)
    text = lm.engine.prompts[-1][1]
    assert found.answer == "Yes"
    if two_step:
        patterns, alerts = (json.loads(section(text, kind)) for kind in ("patterns", "alerts"))
    else:
        heads = [re.escape(f"{head}:\n") for head in BLOCKS.values()]
        shown = re.fullmatch(f"{heads[0]}(.*){heads[1]}(.*)", section(text, "context"), re.DOTALL)
        patterns, alerts = (
            [line.partition("] ")[2] for line in part.splitlines()] for part in shown.groups()
        )
    assert patterns == ["Ann, 34, nurse", "agreed p-1"]
    assert sorted(alerts) == sorted(COMMON_BIASES)
    lines = section(text, "records").splitlines()
    assert lines[0].startswith("[profile:1]")
    assert lines[-1].endswith("video; situation-40-x => action-40-x")
    assert "one of a" not in text
    assert len(found.memory.pool) == 12


@pytest.mark.parametrize(
    ("settings", "gone", "new"),
    [
        ({"deep_thinking": False}, {"useful_patterns"}, {"predicted_action"}),
        ({"reflection": False}, {"tasks"}, {"proposals"}),
        ({"consensus": False}, {"decisions"}, set()),
        ({"groundedness": False}, {"plans", "groundedness"}, set()),
        ({"generalizability": False}, {"virtual_scenes", "scene_choices"}, set()),
        ({"blind": False}, {"scene_choices"}, {"generality"}),
    ],
)
def test_an_ablation_takes_its_prompts_away_and_leaves_the_others(practised, settings, gone, new):
    full, less = practised(), practised(**settings)
    assert set(less.calls) == (set(full.calls) - gone) | new
    assert less.memory.counts["pooled"] == 15
    kept = {"plans", "virtual_scenes"} - gone
    assert sorted(less.texts(*kept)) == sorted(full.texts(*kept))
    if "deep_thinking" in settings:
        assert less.shown("tasks", "thinking")[0] == ""
    if "reflection" in settings:
        assert "thinking" not in less.texts("proposals")[0]


def test_a_stored_memory_goes_on_practising_where_it_stopped(scripted, store):
    nothing = {"decisions": "-", "changes": []}
    lm, items = scripted(practice_script(decisions=nothing)), behavior(60).items
    for part in (items[:4], items[4:]):
        memory = pramem(rounds=80).memory(store, "ann", lm=lm)
        for item in part[:-1]:
            memory.add(item, remember=False)
        memory.add(part[-1])
    found = memory.read()
    places = [int(record[1:]) for record in records(found)]
    assert sorted(places[:25]) == list(range(6, 31))
    assert sorted(places[25:]) == list(range(31, 61))
    assert found.practised == found.total == 60
    assert lm.engine.calls["useful_patterns"] == 55


def actions(count, start=1):
    return [
        Action(id=f"a{n}", scene="video", situation=f"situation-{n}-x", action=f"action-{n}-x")
        for n in range(start, start + count)
    ]


def memory(count):
    return ExperienceMemory().with_records(actions(count))


def draw(memory, rounds, samples=1, **settings):
    return draw_samples(memory, PracticeSettings(rounds=rounds, samples=samples, **settings))


def number(id):
    return int(id[1:])


@given(
    count=st.integers(0, 60),
    more=st.integers(0, 30),
    rounds=st.integers(1, 80),
    per_round=st.integers(1, 3),
    tokens=st.integers(0, 400),
    least=st.integers(1, 12),
    weighting=st.sampled_from(["uniform", "recency"]),
    seed=st.integers(0, 5),
)
def test_a_sample_shows_the_records_right_before_its_target_and_none_later(
    count, more, rounds, per_round, tokens, least, weighting, seed
):
    start = memory(count)
    settings = {
        "practice_tokens": tokens,
        "weighting": weighting,
        "min_history": least,
        "seed": seed,
    }
    first = draw(start, rounds, per_round, **settings)
    grown = start.mark_practised(tokens).with_records(actions(more, count + 1))
    second = draw(grown, rounds, per_round, **settings)
    for samples, since, total in ((first, 0, count), (second, count, count + more)):
        targets = [number(sample.target.id) for sample in samples]
        room = max(0, total - max(since, least))
        assert len(samples) == (
            min(rounds * per_round, room) if weighting == "uniform" else room and rounds * per_round
        )
        if weighting == "uniform":
            assert len(set(targets)) == len(targets)
        assert all(since < target <= total and target > least for target in targets)
    for sample in (*first, *second):
        target, shown = number(sample.target.id), [number(record.id) for record in sample.past]
        assert shown == list(range(target - len(shown), target))
        assert f"action-{target}-x" not in sample.records + sample.situation + sample.true_scene(
            500
        )


def test_fewer_rounds_draw_the_first_of_the_same_samples():
    many = draw(memory(50), 30, seed=3)
    assert draw(memory(50), 10, seed=3) == many[:10]
    assert draw(memory(50), 10, seed=4) != many[:10]


def test_a_target_carries_its_questions_and_one_without_any_is_not_drawn():
    asked = [
        action.model_copy(update={"questions": ("Like it?", "Share it?")[: n % 3]})
        for n, action in enumerate(actions(9))
    ]
    samples = draw(ExperienceMemory().with_records(asked), 9, min_history=1)
    assert sorted(number(sample.target.id) for sample in samples) == [2, 3, 5, 6, 8, 9]
    sample = next(sample for sample in samples if sample.target.id == "a3")
    assert sample.situation.splitlines()[1:] == ["1. Like it?", "2. Share it?"]
    assert sample.exercise.splitlines() == [
        sample.target.turn().line(),
        "1. Like it?",
        "2. Share it?",
    ]
    assert sample.true_scene(100) == "video; situation-3-x 1. Like it? 2. Share it?"
    assert sample.true_scene(5) == "video... 1. Like it? 2. Share it?"
    assert draw(memory(9), 9, min_history=1)[0].situation.count("\n") == 0


def pooled(pool=6):
    start = ExperienceMemory().with_initial_entry("pattern", "Likes jazz", ("a1",))
    start = start.with_initial_entry("alert", "I overrate likes", ("a2",))
    proposals = tuple(
        Proposal(
            id=f"p-{n}",
            action="add pattern",
            content=f"said  {n} ",
            trigger="t",
            sources=(f"r{n}", "all"),
        )
        for n in range(1, pool + 1)
    )
    return start.replace(pool=proposals, issued={**start.issued, "p": pool})


def change_of(action, target=None, text="", proposals=()):
    return ExperienceChange(
        action=action, experience_id=target, text=text, proposal_ids=list(proposals)
    )


def adjusted(memory, changes, **settings):
    return apply_changes(memory, changes, PracticeSettings(**settings))


def ids(*numbers):
    return tuple(f"p-{n}" for n in numbers)


def test_three_supporters_make_an_entry_with_their_sources_and_leave_the_pool():
    start = pooled()
    after = adjusted(start, [change_of("add pattern", text="Skips ads", proposals=ids(1, 3, 5))])
    new = after.patterns[-1]
    assert new.id == "pattern-2"
    assert new.text == "Skips ads"
    assert new.sources == ("r1", "all", "r3", "r5")
    assert new.support == ids(1, 3, 5)
    assert after.pool == tuple(p for p in start.pool if p.id in ids(2, 4, 6))
    assert after.counts == {"added": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_of("add pattern", text="x", proposals=ids(1, 2)), "too little support"),
        (change_of("add pattern", text="x"), "too little support"),
        (change_of("add pattern", text="x", proposals=("p-1", "p-1", "p-1")), "too little support"),
        (change_of("add pattern", text="x", proposals=(*ids(1, 2), "p-99")), "invented proposal"),
        (
            change_of("add pattern", text="x", proposals=(*ids(1, 2, 3), "p-99")),
            "invented proposal",
        ),
        (change_of("add alert", text="  ", proposals=ids(1, 2, 3)), "empty text"),
        (change_of("modify", "pattern-1", " null ", ids(1, 2, 3)), "empty text"),
        (change_of("modify", "pattern-9", "x", ids(1, 2, 3)), "unknown entry"),
        (change_of("remove", None, "", ids(1, 2, 3)), "unknown entry"),
        (change_of("downgrade", "pattern-9", "", ids(1, 2, 3)), "unknown entry"),
        (change_of("downgrade", "alert-1", "", ids(1, 2)), "too little support"),
    ],
)
def test_a_change_without_what_it_needs_is_refused_and_counted(change, reason):
    start = pooled()
    after = adjusted(start, [change])
    assert after == start.with_counts({f"refused: {reason}": 1})


@pytest.mark.parametrize(
    ("distinct", "outcome"), [(True, "refused: too little support"), (False, "added")]
)
def test_proposals_of_one_record_are_one_supporter_if_records_count(distinct, outcome):
    start = pooled()
    same = tuple(proposal.model_copy(update={"sources": ("r1",)}) for proposal in start.pool)
    change = change_of("add pattern", text="x", proposals=ids(1, 2, 3))
    after = adjusted(start.replace(pool=same), [change], distinct_records=distinct)
    assert after.counts == {outcome: 1}


def test_a_modified_entry_keeps_its_id_its_sources_and_the_old_wording():
    after = adjusted(pooled(), [change_of("modify", "pattern-1", "Likes slow jazz", ids(1, 2, 3))])
    (entry,) = after.patterns
    assert entry.id == "pattern-1"
    assert entry.text == "Likes slow jazz"
    assert entry.earlier == ("Likes jazz",)
    assert entry.sources == ("a1", "r1", "all", "r2", "r3")


@pytest.mark.parametrize("word", ["downgrade", "remove", "Delete existing experience"])
def test_no_entry_is_deleted_a_downgraded_one_is_a_proposal_in_its_own_words(word):
    downgraded = adjusted(pooled(), [change_of(word, "alert-1", proposals=ids(1, 2, 3))])
    assert downgraded.alerts == ()
    back = downgraded.pool[-1]
    assert back.id == "p-7"
    assert back.action == "add alert"
    assert back.content == "I overrate likes"
    assert back.sources == ("a2",)
    assert downgraded.counts == {"downgraded": 1}
    assert "remove" not in get_args(Adjustment)
    assert "The way to remove an entry is to downgrade it" in " ".join(
        AdjustExperience.instructions.split()
    )


def test_a_text_that_is_there_already_is_supported_and_not_repeated():
    after = adjusted(
        pooled(), [change_of("add pattern", text="likes  jazz", proposals=ids(1, 2, 3))]
    )
    assert [part.text for part in after.patterns] == ["Likes jazz"]
    assert after.patterns[0].support == ids(1, 2, 3)
    assert after.counts == {"merged": 1}


def test_without_consensus_every_proposal_is_carried_out():
    start = pooled(2)
    more = Proposal(id="p-3", action="remove", target="alert-1")
    odd = Proposal(id="p-4", action="modify", target="alert-1", content="too late")
    start = start.replace(pool=(*start.pool, more, odd))
    after = adopt_all_proposals(start, PracticeSettings(consensus=False))
    assert [part.text for part in after.patterns] == ["Likes jazz", "said 1", "said 2"]
    assert after.alerts == ()
    assert after.pool == ()
    assert after.counts == {"added": 2, "downgraded": 1, "refused: unknown entry": 1}


def test_the_experience_after_a_round_is_read_from_one_run(practised, scripted):
    read = PracticeSettings(rounds=15, min_history=5, keep_rounds=True)
    long = practised(rounds=15, keep_rounds=True).memory
    assert [each.round for each in long.kept_rounds] == [0, 5, 10, 15]
    for rounds in (5, 10, 15):
        short = practised(rounds=rounds).memory
        at_round = long.at_round(rounds)
        assert at_round.patterns == short.patterns
        assert at_round.alerts == short.alerts
    assert len({long.at_round(rounds).patterns for rounds in (5, 10, 15)}) == 3

    lm = scripted(practice_script())
    with dspy.context(lm=lm):
        first = pramem(rounds=15, keep_rounds=True, at_round=5)
        contexts = [first(history=behavior(), **QUESTION).context]
        for at_round in (12, 80, None):
            program = build(
                "pramem",
                "behavior-prediction",
                cache=first.cache,
                **{**read.model_dump(), "at_round": at_round},
            )
            contexts.append(program(history=behavior(), **QUESTION).context)
    assert [context.counts["patterns"] for context in contexts] == [2, 3, 4, 4]
    assert lm.engine.calls["useful_patterns"] == 15


@pytest.mark.parametrize(
    ("at_round", "texts"), [(0, []), (5, ["Likes jazz"]), (10, ["Likes jazz at night"])]
)
def test_a_search_and_what_is_shown_where_it_finds_nothing_are_of_the_round_too(at_round, texts):
    early = Experience(id="pattern-1", kind="pattern", text="Likes jazz", sources=("r1",))
    late = Experience(
        id="pattern-1", kind="pattern", text="Likes jazz at night", sources=("r1", "r2")
    )
    kept_rounds = (
        RoundExperience(round=0),
        RoundExperience(round=5, patterns=(early,)),
        RoundExperience(round=10, patterns=(late,)),
    )
    memory = ExperienceMemory(patterns=(late,), kept_rounds=kept_rounds)
    method = pramem(alerts=False, keep_rounds=True, at_round=at_round).method
    assert [hit.text for hit in method.reader.search(memory, ["jazz"])[0]] == texts
    assert [entry.text for entry in method.reader.entries(memory)] == texts
    # Without any experience a fallback is shown, which must not be of a later round either.
    assert [hit.text for hit in method.recall(memory, Query(text="jazz")).context.hits] == texts


def test_rounds_that_are_not_kept_cannot_be_read():
    with pytest.raises(
        UserError, match="at_round=5 reads experience that is not kept; set keep_rounds=true too"
    ):
        pramem(at_round=5)


def test_an_entry_that_its_user_deleted_is_gone_from_the_rounds_that_are_kept(practised):
    memory = practised(rounds=5, keep_rounds=True).memory
    gone = memory.patterns[-1]
    row = Amendment(1, "delete", gone.id, gone.kind, gone.text, gone.sources)
    left = pramem().method.reader.with_edits(memory, Amendments([row]))
    assert gone.text in memory.model_dump_json()
    assert gone.text not in left.replace(pool=()).model_dump_json()
