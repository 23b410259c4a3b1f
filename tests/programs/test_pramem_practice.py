"""PraMem with a scripted model: practice, reviews of proposals, adjustments, and answers.

PraMem learns from a user's own records. A round of practice predicts what the user did in a past
record (the trial, "useful_patterns"), compares that with what happened (the reflection, "tasks"),
and proposes experience: patterns of the user, and alerts to mistakes of the model. A proposal has
to pass two reviews. One asks whether it depends on the records ("plans", "groundedness"), the
other whether it is general ("virtual_scenes", then "scene_choices" or "generality"). Proposals that
pass wait in the pool, until an adjustment ("decisions") adopts what several of them support.

The script of `practice_script` proposes three experiences a round, "one of a7", "two of a7" and
"three of a7" after practice on the record a7. All pass the reviews. An adjustment adopts one
pattern, "agreed p-1", from the first proposals of three records.

The fixture `practised` writes a history of the profile "Ann, 34, nurse", which is the first
pattern, and of the records a1, a2, ... By default a history has 30 records and practice has five
rounds. A record is practised on only if at least five come before it. An adjustment follows every
fifth round. `writing.calls` counts the calls by their first output field.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Action, UserError, build
from mempiler.memory.edits import Amendment, Amendments
from mempiler.programs.pramem.adjustment import adopt_all_proposals, apply_changes
from mempiler.programs.pramem.memory import (
    COMMON_BIASES,
    Experience,
    ExperienceMemory,
    Proposal,
    RoundExperience,
)
from mempiler.programs.pramem.samples import Sample, draw_samples
from mempiler.programs.pramem.settings import PracticeSettings
from mempiler.programs.pramem.writer import PracticeWriter
from mempiler.programs.threads import in_order
from mempiler.programs.writing import finalize_memory
from mempiler.records import Behavior, Query
from mempiler.signatures.pramem import AdjustExperience, Adjustment, ExperienceChange

from .conftest import behavior, practice_script, section

PROPOSALS_PER_ROUND = 3
"""How many proposals the script makes of a record."""

QUESTION = {"question": "video; a clip. Does the user like it?", "options": ["Yes", "No"]}


def pramem(**settings: Any) -> Any:
    """Return PraMem for behaviour prediction, with few rounds unless settings say otherwise."""
    return build(
        "pramem", task="behavior-prediction", **{"rounds": 5, "min_history": 5, **settings}
    )


def practised_record_ids(memory: ExperienceMemory) -> list[str]:
    """Return the ids of the practised records in the order of their rounds.

    Some proposal of each must be in the pool.
    """
    return list(dict.fromkeys(proposal.record for proposal in memory.pool))


def pattern_texts(memory: ExperienceMemory) -> list[str]:
    return [pattern.text for pattern in memory.patterns]


def record_number(record_id: str) -> int:
    """Return 7 for the record a7."""
    return int(record_id.removeprefix("a"))


def actions(count: int, start: int = 1) -> list[Action]:
    """Return records with consecutive numbers, the first of which is `start`."""
    return [
        Action(
            id=f"a{number}",
            scene="video",
            situation=f"situation-{number}-x",
            action=f"action-{number}-x",
        )
        for number in range(start, start + count)
    ]


# Rounds of practice


def test_each_round_has_six_calls_and_every_fifth_round_an_adjustment(practised: Any) -> None:
    writing = practised(records=30, rounds=10)

    assert writing.calls == {
        "useful_patterns": 10,
        "tasks": 10,
        "plans": 10,
        "groundedness": 10,
        "virtual_scenes": 10,
        "scene_choices": 10,
        "decisions": 2,
    }
    memory = writing.memory
    assert {proposal.round for proposal in memory.pool} == {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
    assert memory.counts == {"pooled": 10 * PROPOSALS_PER_ROUND, "added": 2}
    # Round 0 stands for the beginning, where the profile is the only pattern.
    assert memory.adjusted == (0, 5, 10)
    assert pattern_texts(memory) == ["Ann, 34, nurse", "agreed p-1", "agreed p-2"]
    # No record waits for practice, although only ten were drawn.
    assert memory.practised == 30
    assert memory.waiting == 0
    assert memory.rounds == 10


def test_rounds_between_two_adjustments_see_the_same_experience(practised: Any) -> None:
    """The pattern "agreed p-1" is adopted after the fifth round, so only later trials see it."""
    shown_patterns = practised(rounds=10).shown("useful_patterns", "patterns")

    assert len(shown_patterns) == 10
    for patterns in shown_patterns[:5]:
        assert "agreed p-1" not in patterns
    for patterns in shown_patterns[5:]:
        assert "agreed p-1" in patterns
    # It was adopted after the last round.
    assert not any("agreed p-2" in patterns for patterns in shown_patterns)


def test_the_memory_does_not_depend_on_which_round_ends_first(practised: Any) -> None:
    """Five rounds run at the same time, in threads; `in_order` runs one after another."""
    concurrent_memory = practised(rounds=10, samples=2).memory
    with in_order():
        sequential_memory = practised(rounds=10, samples=2).memory

    assert sequential_memory == concurrent_memory


def test_to_finalize_a_memory_whose_records_are_practised_asks_no_model(
    practised: Any,
) -> None:
    """To finalize a memory is to do what waits for the end of the history; here nothing waits."""
    memory = practised(rounds=10, samples=2).memory

    # Without a language model, a call of it would be an error.
    with dspy.context(lm=None):
        finalized_memory = finalize_memory(pramem().method.writer, memory)

    assert finalized_memory == memory


def shown_record_ids(lines: Sequence[str]) -> list[str]:
    """Return the ids of the records in lines of a prompt: a7 of "[a7] user: video; ..."."""
    return [line.split("]")[0].strip("[") for line in lines]


def test_a_trial_sees_the_profile_and_the_records_before_its_target(practised: Any) -> None:
    """The target is the record whose action is predicted, so the action must not be shown."""
    writing = practised(rounds=1)

    target = record_number(practised_record_ids(writing.memory)[0])
    profile_line, *record_lines = writing.shown("useful_patterns", "recent_records")[0].splitlines()
    assert profile_line == "[profile:1] profile: Ann, 34, nurse"
    assert shown_record_ids(record_lines) == [f"a{number}" for number in range(1, target)]

    situation = writing.shown("useful_patterns", "situation")[0]
    assert situation.endswith(f"user: video; situation-{target}-x")
    assert f"action-{target}-x" not in writing.texts("useful_patterns")[0]


def test_a_reflection_sees_the_thinking_of_the_trial_and_the_experience(practised: Any) -> None:
    """The reflection needs to know why the prediction was wrong.

    Every user begins with some alerts, the common biases of models, and with the profile as a
    pattern.
    """
    thinking = {
        "useful_patterns": ["nurse"],
        "useful_alerts": ["mind"],
        "reasoning": "so",
        "predicted_action": "x",
    }

    writing = practised({"useful_patterns": thinking}, rounds=1)

    assert writing.shown("tasks", "thinking") == ["nurse\nmind\nso"]
    shown_patterns = writing.shown("tasks", "pattern_experiences")[0]
    assert "Ann, 34, nurse" in shown_patterns
    assert COMMON_BIASES[0] not in shown_patterns
    shown_alerts = writing.shown("tasks", "alert_experiences")[0]
    assert COMMON_BIASES[0] in shown_alerts
    assert "Ann, 34, nurse" not in shown_alerts


@pytest.mark.parametrize(
    ("output", "counts", "failures"),
    [
        # A trial or a reflection costs its round.
        ("useful_patterns", {"failed": 10}, 10),
        ("tasks", {"failed": 10}, 10),
        # A review costs the three proposals of its round.
        ("plans", {"malformed": 10 * PROPOSALS_PER_ROUND}, 10),
        ("scene_choices", {"malformed": 10 * PROPOSALS_PER_ROUND}, 10),
        # All proposals stay in the pool if none can be adopted.
        ("decisions", {"pooled": 10 * PROPOSALS_PER_ROUND, "unreadable adjustments": 2}, 2),
    ],
)
def test_an_unreadable_answer_costs_its_step_and_is_counted(
    practised: Any, output: str, counts: dict[str, int], failures: int
) -> None:
    """What cannot be read is lost, but practice goes on, and the user sees how much was lost."""
    writing = practised({output: "no"}, rounds=10)

    assert writing.memory.counts == counts
    assert len(writing.failures) == failures
    assert pattern_texts(writing.memory) == ["Ann, 34, nurse"]
    assert writing.memory.waiting == 0


def test_proposals_that_cannot_be_carried_out_are_counted_as_invalid(practised: Any) -> None:
    drafts = [
        {
            "action": "modify",
            "experience_id": "pattern-1",
            "content": "is 35 now",
            "record_ids": "[a1]",
        },
        {
            "action": "Remove Existing Experience",
            "experience_id": "alert-2",
            "content": None,
        },
        # Three invalid ones: of an unknown entry, without content, and beyond the limit of four
        {"action": "modify", "experience_id": "pattern-9", "content": "x"},
        {"action": "add pattern", "content": " "},
        {"action": "add pattern", "content": "one too many"},
    ]

    memory = practised({"tasks": {"tasks": [], "proposals": drafts}}, rounds=1, proposals=4).memory

    assert memory.counts == {"invalid": 3, "pooled": 2}
    # A proposal rests on the practised record, and on those that it names.
    target_id = practised_record_ids(memory)[0]
    modification, removal = memory.pool
    assert modification.action == "modify"
    assert modification.target == "pattern-1"
    assert modification.sources == (target_id, "a1")
    assert removal.action == "remove"
    assert removal.target == "alert-2"
    assert removal.sources == (target_id,)


def test_without_new_proposals_no_review_and_no_adjustment_is_asked_for(practised: Any) -> None:
    writing = practised({"tasks": {"tasks": [], "proposals": []}})

    assert writing.calls["decisions"] == 0
    assert writing.calls["groundedness"] == 0
    assert writing.memory.rounds == 5


@pytest.mark.parametrize(
    ("failed_record", "shown_records"),
    [
        ("a19", ["a17", "a18"]),
        # The memory has dropped it, and all records that it still has came later.
        ("a2", []),
    ],
)
def test_a_trial_that_is_repeated_sees_no_record_after_its_target(
    scripted: Any, failed_record: str, shown_records: list[str]
) -> None:
    """Practice on a record whose answers could not be read is repeated after later records came.

    The trial must not see the later ones: it would know the future.
    """
    # The memory keeps the newest of its 20 records, of which four fit into 60 tokens.
    memory = ExperienceMemory().with_records(actions(20)).mark_practised(max_tokens=60)
    assert [record.id for record in memory.records] == ["a17", "a18", "a19", "a20"]
    failed_actions = actions(count=1, start=record_number(failed_record))
    failed_item = Behavior.from_actions("failed", failed_actions)
    writer = PracticeWriter(PracticeSettings(practice_tokens=60))
    lm = scripted(practice_script())

    with dspy.context(lm=lm):
        writer.update_with_part(memory, failed_item)

    (trial,) = [text for kind, text in lm.engine.prompts if kind == "useful_patterns"]
    lines = section(trial, "recent_records").splitlines()
    assert shown_record_ids(lines) == shown_records


def test_a_stored_memory_practises_only_on_records_that_came_since_the_last_practice(
    scripted: Any, store: Any
) -> None:
    # Without adjustments all proposals stay in the pool, where they tell what was practised on.
    no_adjustment = {"decisions": "-", "changes": []}
    lm = scripted(practice_script(decisions=no_adjustment))
    # A profile, and the records a1 to a60 in six items of ten
    items = behavior(60).items

    # The records a1 to a30 come first, and later a31 to a60.
    for part in (items[:4], items[4:]):
        # A new program opens the memory, as after a restart.
        memory = pramem(rounds=80, min_history=5).memory(store, "ann", lm=lm)
        for item in part[:-1]:
            memory.add(item, remember=False)
        memory.add(part[-1])

    written_memory = memory.read()
    practised_numbers = [record_number(record) for record in practised_record_ids(written_memory)]
    # There are more rounds than records. The first five records have too few before them.
    records_of_first_run = list(range(6, 31))
    records_of_second_run = list(range(31, 61))
    assert sorted(practised_numbers[:25]) == records_of_first_run
    assert sorted(practised_numbers[25:]) == records_of_second_run
    assert written_memory.practised == 60
    assert written_memory.total == 60
    assert lm.engine.calls["useful_patterns"] == 25 + 30


# Reviews of proposals. With `needed=9` a change needs nine proposals, so that no adjustment takes
# any out of the pool. With `blind=False` the review of generality asks for each proposal whether it
# is general; otherwise the reviewer has to guess the scene that the proposal was made from.


def first_words_of_pool(memory: ExperienceMemory) -> list[str]:
    """Return the first words of the proposals that passed: some of "one", "two", "three"."""
    return [proposal.content.split()[0] for proposal in memory.pool]


def review_answers(output: str, key: str, verdicts: Sequence[Any]) -> dict[str, Any]:
    """Return a change of the script: verdicts on the proposals r1, r2, ...

    Args:
        output: The output field of the review.
        key: The field of a verdict that says whether the proposal passes.
        verdicts: What the review says; it says nothing of a proposal with the verdict "missing".
    """
    rows: list[dict[str, Any]] = []
    for number, verdict in enumerate(verdicts, 1):
        if verdict != "missing":
            rows.append({"proposal": f"r{number}", key: verdict})
    return {output: {output: rows}}


@pytest.mark.parametrize(
    ("verdicts", "passing", "counts"),
    [
        ((True, False, "Yes"), ["one", "three"], {"pooled": 2, "ungrounded": 1}),
        ((True, "missing", True), ["one", "three"], {"pooled": 2, "malformed": 1}),
        ((True, "perhaps", None), ["one"], {"pooled": 1, "malformed": 2}),
    ],
)
def test_a_proposal_passes_that_clearly_depends_on_the_records(
    practised: Any, verdicts: tuple[Any, ...], passing: list[str], counts: dict[str, int]
) -> None:
    """The groundedness review asks whether a proposal would change if the records were others."""
    answers = review_answers("groundedness", "sensitive", verdicts)

    memory = practised(answers, rounds=1, needed=9, blind=False).memory

    assert first_words_of_pool(memory) == passing
    assert memory.counts == counts
    # One proposal with a verdict is enough: the record is not practised on again.
    assert memory.failed_items == ()


@pytest.mark.parametrize(
    ("verdicts", "passing", "counts"),
    [
        # Whatever is not general is counted as specific.
        ((True, False, True), ["one", "three"], {"pooled": 2, "specific": 1}),
        ((0.5, "no", "true"), ["three"], {"pooled": 1, "malformed": 1, "specific": 1}),
    ],
)
def test_a_proposal_passes_that_is_clearly_general(
    practised: Any, verdicts: tuple[Any, ...], passing: list[str], counts: dict[str, int]
) -> None:
    """A general proposal holds in other scenes too.

    The reviewer has to say so clearly; any other verdict rejects the proposal.
    """
    answers = review_answers("generality", "general", verdicts)

    memory = practised(answers, rounds=1, needed=9, blind=False).memory

    assert first_words_of_pool(memory) == passing
    assert memory.counts == counts
    assert memory.failed_items == ()


def test_a_record_of_which_no_proposal_could_be_judged_is_tried_again(practised: Any) -> None:
    """The failed items of a memory are those that wait for another try."""
    answers = review_answers("groundedness", "sensitive", ("perhaps", None, "missing"))

    memory = practised(answers, rounds=1).memory

    assert memory.counts == {"malformed": 3}
    assert len(memory.failed_items) == 1


def test_generality_is_only_asked_of_grounded_proposals(practised: Any) -> None:
    """The second review costs less if it is not asked about what the first has rejected."""
    only_the_second = review_answers("groundedness", "sensitive", (False, True, False))

    writing = practised(only_the_second, rounds=1, blind=False)

    (proposals,) = writing.shown("generality", "proposals")
    assert "two of" in proposals
    assert "one of" not in proposals
    assert "three of" not in proposals


def test_long_scenes_are_cut_in_the_prompts_on_generality(practised: Any) -> None:
    """A scene is the situation of a record, and some of them are long texts."""
    # Of a true scene like "video; situation-7-x" eight characters stay.
    writing = practised(rounds=1, scene_chars=8, blind=False)

    situation = writing.shown("virtual_scenes", "situation")[0]
    assert situation.splitlines()[0] == "video; s..."
    candidates = writing.shown("generality", "candidates")[0]
    assert candidates.startswith("A. video; s...\n")


# The blind review of generality. A proposal is made from one practised record, and should hold in
# other situations too. So the reviewer is shown the proposal and some lettered scenes: the true
# scene, which is the situation of that record, and scenes that a model has invented. The reviewer
# is not told which scene is the true one, and has to guess it from the proposal. A proposal that
# gives it away is too specific. Each round of practice has one such review.


def scenes_by_letter(review_prompt: str) -> dict[str, str]:
    """Return the scenes that the prompt of a blind review shows, by their letters.

    The prompt has a line for each: "A. video; situation-7-x".
    """
    lines = section(review_prompt, "candidates").splitlines()
    return dict(line.split(". ", 1) for line in lines)


def letter_of_true_scene(review_prompt: str) -> str:
    """Return the letter of the true scene; fail unless the prompt shows exactly one.

    Only the situations of records have the word "situation" in these tests, as in "situation-7-x".
    """
    true_letters = [
        letter
        for letter, scene in scenes_by_letter(review_prompt).items()
        if scene.startswith("video; situation-")
    ]
    assert len(true_letters) == 1, f"not one true scene but {len(true_letters)}: {review_prompt}"
    return true_letters[0]


def test_a_blind_review_shows_one_true_scene_among_the_invented_ones(practised: Any) -> None:
    invented_scenes = ["video; a concert", "video; a football match", "video; a recipe"]

    writing = practised(
        {"virtual_scenes": {"virtual_scenes": invented_scenes}},
        rounds=10,
        virtual_scenes=len(invented_scenes),
    )

    review_prompts = writing.texts("scene_choices")
    assert len(review_prompts) == 10
    for review_prompt in review_prompts:
        true_letter = letter_of_true_scene(review_prompt)
        other_scenes = [
            scene
            for letter, scene in scenes_by_letter(review_prompt).items()
            if letter != true_letter
        ]
        assert sorted(other_scenes) == invented_scenes


def test_the_true_scene_of_a_blind_review_is_the_situation_of_the_practised_record(
    practised: Any,
) -> None:
    writing = practised(rounds=1)

    [record_id] = practised_record_ids(writing.memory)
    [review_prompt] = writing.texts("scene_choices")
    true_scene = scenes_by_letter(review_prompt)[letter_of_true_scene(review_prompt)]
    assert true_scene == f"video; situation-{record_number(record_id)}-x"


def test_a_blind_review_shows_seven_invented_scenes_by_default(practised: Any) -> None:
    [review_prompt] = practised(rounds=1).texts("scene_choices")

    number_of_true_scenes = 1
    assert len(scenes_by_letter(review_prompt)) == number_of_true_scenes + 7


def test_the_true_scene_does_not_have_the_same_letter_in_every_round(practised: Any) -> None:
    """A reviewer must not learn the true scene from its place."""
    review_prompts = practised(rounds=10).texts("scene_choices")

    letters = {letter_of_true_scene(review_prompt) for review_prompt in review_prompts}
    assert len(letters) > 3


def test_the_places_of_the_true_scenes_are_the_same_in_a_second_run(practised: Any) -> None:
    """The places are drawn with the seed of the settings, so a run can be repeated."""
    first_run = practised(rounds=10)
    second_run = practised(rounds=10)

    # Rounds run concurrently, so only the order of the prompts may differ.
    first_candidates = sorted(first_run.shown("scene_choices", "candidates"))
    second_candidates = sorted(second_run.shown("scene_choices", "candidates"))
    assert first_candidates == second_candidates


@pytest.mark.parametrize(
    ("choices", "passing", "counts"),
    [
        (
            ("several", "TRUE", "OTHER"),
            ["one", "three"],
            {"pooled": 2, "specific": 1},
        ),
        (
            ("Situation TRUE", "[OTHER]", "Several."),
            ["two", "three"],
            {"pooled": 2, "specific": 1},
        ),
        (
            ("Z", "none", "perhaps OTHER"),
            [],
            {"malformed": 3},
        ),
    ],
)
def test_a_proposal_by_which_a_reviewer_finds_the_true_scene_is_too_specific(
    practised: Any, choices: tuple[str, ...], passing: list[str], counts: dict[str, int]
) -> None:
    """The reviewer says for each of three proposals which of the scenes A, B, ... it is about."""

    def choose_scenes(text: str, n: int) -> dict[str, Any]:
        """Put the letter of the true scene for TRUE, and that of an invented one for OTHER."""
        true_letter = letter_of_true_scene(text)
        other_letter = "A" if true_letter != "A" else "B"
        rows: list[dict[str, str]] = []
        for number, choice in enumerate(choices, 1):
            answer = choice.replace("TRUE", true_letter).replace("OTHER", other_letter)
            rows.append({"proposal": f"r{number}", "situation": answer})
        return {"scene_choices": rows}

    memory = practised({"scene_choices": choose_scenes}, rounds=1, needed=9).memory

    assert first_words_of_pool(memory) == passing
    assert memory.counts == counts


# Answers


class Answer(NamedTuple):
    """A prediction of PraMem, and the last prompt, which asked for it."""

    prediction: Any
    prompt: str


def answer_after_practice(scripted: Any, two_step: bool) -> Answer:
    """Practise on 30 records, and ask a question after one more record, a40."""
    lm = scripted(practice_script())
    program = pramem(two_step=two_step)
    recent_items = behavior(40).items[-1:]
    with dspy.context(lm=lm):
        prediction = program(history=behavior(30), recent=recent_items, **QUESTION)
    _, prompt = lm.engine.prompts[-1]
    return Answer(prediction, prompt)


@pytest.mark.parametrize("two_step", [False, True])
def test_the_answer_prompt_shows_the_newest_records_and_no_proposal(
    scripted: Any, two_step: bool
) -> None:
    """A proposal is not confirmed, so an answer must not rest on it."""
    prediction, prompt = answer_after_practice(scripted, two_step)

    assert prediction.answer == "Yes"
    lines = section(prompt, "records").splitlines()
    assert lines[0].startswith("[profile:1]")
    assert lines[-1].endswith("video; situation-40-x => action-40-x")

    # Three of the proposals of five rounds were adopted, and the others wait in the pool.
    assert len(prediction.memory.pool) == 5 * PROPOSALS_PER_ROUND - 3
    assert "one of a" not in prompt


def test_the_answer_prompt_of_two_steps_shows_patterns_and_alerts_in_their_own_fields(
    scripted: Any,
) -> None:
    """With `two_step` the model first says which experience is relevant, and then answers."""
    prompt = answer_after_practice(scripted, two_step=True).prompt

    assert json.loads(section(prompt, "patterns")) == ["Ann, 34, nurse", "agreed p-1"]
    assert sorted(json.loads(section(prompt, "alerts"))) == sorted(COMMON_BIASES)


def test_the_answer_prompt_of_one_step_shows_patterns_and_alerts_under_headings(
    scripted: Any,
) -> None:
    prompt = answer_after_practice(scripted, two_step=False).prompt

    lines = section(prompt, "context").splitlines()
    alerts_start = lines.index("Mistakes that you tend to make about this user and must avoid:")
    assert lines[0] == "What earlier records have shown about this user:"
    # A line is "[pattern-1] Ann, 34, nurse".
    patterns = [line.partition("] ")[2] for line in lines[1:alerts_start]]
    assert patterns == ["Ann, 34, nurse", "agreed p-1"]
    alerts = [line.partition("] ")[2] for line in lines[alerts_start + 1 :]]
    assert sorted(alerts) == sorted(COMMON_BIASES)


# Ablations: the paper leaves out one part of PraMem at a time, to measure what the part is worth


@pytest.mark.parametrize(
    ("settings", "missing", "additional"),
    [
        ({"deep_thinking": False}, {"useful_patterns"}, {"predicted_action"}),
        ({"reflection": False}, {"tasks"}, {"proposals"}),
        ({"consensus": False}, {"decisions"}, set()),
        ({"groundedness": False}, {"plans", "groundedness"}, set()),
        ({"generalizability": False}, {"virtual_scenes", "scene_choices"}, set()),
        ({"blind": False}, {"scene_choices"}, {"generality"}),
    ],
)
def test_a_part_that_is_switched_off_asks_none_of_its_prompts_and_changes_no_other(
    practised: Any, settings: dict[str, bool], missing: set[str], additional: set[str]
) -> None:
    full = practised(rounds=5)
    ablated = practised(rounds=5, **settings)

    assert set(ablated.calls) == (set(full.calls) - missing) | additional
    assert ablated.memory.counts["pooled"] == 5 * PROPOSALS_PER_ROUND
    # These prompts depend on the records alone, so that they are the same.
    for output in {"plans", "virtual_scenes"} - missing:
        assert sorted(ablated.texts(output)) == sorted(full.texts(output))


def test_without_deep_thinking_a_reflection_sees_no_thinking(practised: Any) -> None:
    writing = practised(deep_thinking=False)

    assert writing.shown("tasks", "thinking")[0] == ""


def test_without_reflection_proposals_are_made_without_thinking(practised: Any) -> None:
    """Proposals then rest on the outcome of the trial alone."""
    writing = practised(reflection=False)

    assert "thinking" not in writing.texts("proposals")[0]


# Samples: the records that are drawn for practice, each with what is shown of it. A run of practice
# draws records at random, and in each round the model predicts what the user did in `samples` of
# them. The record to predict is the target. Later runs draw from the records that came since.


def draw(memory: ExperienceMemory, rounds: int, **settings: Any) -> list[Sample]:
    """Draw the samples of some rounds; a round has one sample unless settings say otherwise."""
    return draw_samples(memory, PracticeSettings(rounds=rounds, **settings))


def target_numbers(samples: Sequence[Sample]) -> list[int]:
    """Return the numbers of the records that the model has to predict: 7 for the record a7."""
    return [record_number(sample.target.id) for sample in samples]


class PracticeRun(NamedTuple):
    """A run of practice on the records a1, a2, ... of a user."""

    samples: list[Sample]
    """The records that were drawn for practice. Each is the target of a sample."""
    earlier_record_count: int
    """How many records there were at the end of the run before; these are not drawn again."""
    record_count: int
    """How many records there are."""
    settings: PracticeSettings

    @property
    def wanted_sample_count(self) -> int:
        return self.settings.rounds * self.settings.samples

    @property
    def drawable_record_count(self) -> int:
        """How many records are new and have at least `min_history` records before them."""
        excluded_count = max(self.earlier_record_count, self.settings.min_history)
        return max(0, self.record_count - excluded_count)


def draw_twice(
    first_record_count: int, added_record_count: int, settings: PracticeSettings
) -> tuple[PracticeRun, PracticeRun]:
    """Return a run of practice on a user's first records, and another after more have come."""
    memory = ExperienceMemory().with_records(actions(first_record_count))
    first_run = PracticeRun(
        samples=draw_samples(memory, settings),
        earlier_record_count=0,
        record_count=first_record_count,
        settings=settings,
    )

    # The end of the first run: no record waits, and the memory keeps only the newest records.
    memory = memory.mark_practised(max_tokens=settings.practice_tokens)
    memory = memory.with_records(actions(added_record_count, start=first_record_count + 1))
    second_run = PracticeRun(
        samples=draw_samples(memory, settings),
        earlier_record_count=first_record_count,
        record_count=first_record_count + added_record_count,
        settings=settings,
    )
    return first_run, second_run


def settings_with_weighting(weighting: str) -> st.SearchStrategy[PracticeSettings]:
    """Return a strategy of settings.

    Args:
        weighting: "uniform" if all records are equally likely to be drawn, "recency" if newer ones
            are likelier.
    """
    return st.builds(
        PracticeSettings,
        weighting=st.just(weighting),
        rounds=st.integers(1, 80),
        # Samples of each round
        samples=st.integers(1, 3),
        # The length of the earlier records that are shown with a target
        practice_tokens=st.integers(0, 400),
        # How many records must come before a target
        min_history=st.integers(1, 12),
        seed=st.integers(0, 5),
    )


def two_runs(weighting: str) -> st.SearchStrategy[tuple[PracticeRun, PracticeRun]]:
    """Return a strategy of two successive runs under the same settings."""
    return st.builds(
        draw_twice,
        first_record_count=st.integers(0, 60),
        added_record_count=st.integers(0, 30),
        settings=settings_with_weighting(weighting),
    )


TWO_UNIFORM_RUNS = two_runs("uniform")
TWO_RECENCY_RUNS = two_runs("recency")
ANY_TWO_RUNS = st.one_of(TWO_UNIFORM_RUNS, TWO_RECENCY_RUNS)


@given(runs=ANY_TWO_RUNS)
def test_a_run_draws_new_records_that_have_enough_records_before_them(
    runs: tuple[PracticeRun, PracticeRun],
) -> None:
    for run in runs:
        for target_number in target_numbers(run.samples):
            assert run.earlier_record_count < target_number <= run.record_count
            records_before_target = target_number - 1
            assert records_before_target >= run.settings.min_history


@given(runs=ANY_TWO_RUNS)
def test_a_sample_shows_the_records_right_before_its_target_and_not_its_outcome(
    runs: tuple[PracticeRun, PracticeRun],
) -> None:
    """The outcome is what the user did in the target. The model has to predict it."""
    first_run, second_run = runs
    for sample in [*first_run.samples, *second_run.samples]:
        target = record_number(sample.target.id)
        shown_numbers = [record_number(record.id) for record in sample.past]
        assert shown_numbers == list(range(target - len(shown_numbers), target))

        outcome = f"action-{target}-x"
        assert outcome not in sample.records
        assert outcome not in sample.situation
        assert outcome not in sample.true_scene(500)


@given(runs=TWO_UNIFORM_RUNS)
def test_uniform_weighting_draws_each_record_at_most_once(
    runs: tuple[PracticeRun, PracticeRun],
) -> None:
    """If the settings want more samples than there are records, every record is drawn."""
    for run in runs:
        targets = target_numbers(run.samples)
        assert len(targets) == min(run.wanted_sample_count, run.drawable_record_count)
        assert len(set(targets)) == len(targets)


@given(runs=TWO_RECENCY_RUNS)
def test_recency_weighting_draws_as_many_samples_as_wanted(
    runs: tuple[PracticeRun, PracticeRun],
) -> None:
    """By recency newer records are drawn more often, and a record may come several times."""
    for run in runs:
        if run.drawable_record_count > 0:
            assert len(run.samples) == run.wanted_sample_count
        else:
            assert run.samples == []


def test_fewer_rounds_draw_the_first_of_the_same_samples() -> None:
    """So a longer run goes through the rounds of a shorter one, and then further."""
    memory = ExperienceMemory().with_records(actions(50))

    samples_of_30_rounds = draw(memory, rounds=30, seed=3)

    assert draw(memory, rounds=10, seed=3) == samples_of_30_rounds[:10]
    assert draw(memory, rounds=10, seed=4) != samples_of_30_rounds[:10]


def actions_with_questions() -> list[Action]:
    """Return nine records: a1 has no question, a2 one, a3 two, a4 none again, and so on."""
    questions = ("Like it?", "Share it?")
    return [
        action.model_copy(update={"questions": questions[: position % 3]})
        for position, action in enumerate(actions(9))
    ]


def test_a_record_without_questions_is_not_drawn_if_others_have_some() -> None:
    """Some benchmarks ask questions about each record, such as "Like it?"; a trial answers them."""
    memory = ExperienceMemory().with_records(actions_with_questions())

    samples = draw(memory, rounds=9, min_history=1)

    assert sorted(target_numbers(samples)) == [2, 3, 5, 6, 8, 9]


def test_a_sample_carries_the_questions_of_its_target() -> None:
    """A trial is shown the situation with the questions, and the reflection the exercise.

    A review of generality is shown the true scene, cut to a number of characters.
    """
    memory = ExperienceMemory().with_records(actions_with_questions())

    samples = draw(memory, rounds=9, min_history=1)
    (sample,) = [sample for sample in samples if sample.target.id == "a3"]

    _, *questions_of_situation = sample.situation.splitlines()
    assert questions_of_situation == ["1. Like it?", "2. Share it?"]
    assert sample.exercise.splitlines() == [
        sample.target.turn().line(),
        "1. Like it?",
        "2. Share it?",
    ]
    assert sample.true_scene(100) == "video; situation-3-x 1. Like it? 2. Share it?"
    assert sample.true_scene(5) == "video... 1. Like it? 2. Share it?"


def test_the_situation_of_a_record_without_questions_is_one_line() -> None:
    memory = ExperienceMemory().with_records(actions(9))

    sample = draw(memory, rounds=9, min_history=1)[0]

    assert sample.situation.count("\n") == 0


# Adjustment of the experience


def memory_with_pool(size: int = 6) -> ExperienceMemory:
    """Return a memory with a pattern, an alert, and a pool of proposals p-1, p-2, ...

    The proposal p-1 says "said 1" and rests on the records r1 and "all".
    """
    memory = ExperienceMemory().with_initial_entry("pattern", "Likes jazz", ("a1",))
    memory = memory.with_initial_entry("alert", "I overrate likes", ("a2",))
    pool = tuple(
        Proposal(
            id=f"p-{number}",
            action="add pattern",
            # Proposals are tidied when they are adopted.
            content=f"said  {number} ",
            trigger="t",
            sources=(f"r{number}", "all"),
        )
        for number in range(1, size + 1)
    )
    return memory.replace(pool=pool, issued={**memory.issued, "p": size})


TWO_PROPOSALS = ["p-1", "p-2"]
THREE_PROPOSALS = ["p-1", "p-2", "p-3"]
"""As many proposals as a change needs."""


def test_a_pattern_that_three_proposals_support_is_adopted_and_they_leave_the_pool() -> None:
    """An adjustment names the proposals that support a change, and three are enough.

    The new pattern rests on all records of its supporters.
    """
    memory = memory_with_pool(6)
    addition = ExperienceChange(
        action="add pattern", text="Skips ads", proposal_ids=["p-1", "p-3", "p-5"]
    )

    adjusted_memory = apply_changes(memory, [addition], PracticeSettings())

    new_pattern = adjusted_memory.patterns[-1]
    assert new_pattern.id == "pattern-2"
    assert new_pattern.text == "Skips ads"
    assert new_pattern.sources == ("r1", "all", "r3", "r5")
    assert new_pattern.support == ("p-1", "p-3", "p-5")
    assert [proposal.id for proposal in adjusted_memory.pool] == ["p-2", "p-4", "p-6"]
    assert set(adjusted_memory.pool) <= set(memory.pool)
    assert adjusted_memory.counts == {"added": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            ExperienceChange(action="add pattern", text="x", proposal_ids=TWO_PROPOSALS),
            "too little support",
            id="addition-with-two-supporters",
        ),
        pytest.param(
            ExperienceChange(action="add pattern", text="x"),
            "too little support",
            id="addition-without-supporters",
        ),
        pytest.param(
            ExperienceChange(action="add pattern", text="x", proposal_ids=["p-1", "p-1", "p-1"]),
            "too little support",
            id="one-supporter-three-times",
        ),
        pytest.param(
            ExperienceChange(
                action="downgrade", experience_id="alert-1", proposal_ids=TWO_PROPOSALS
            ),
            "too little support",
            id="downgrade-with-two-supporters",
        ),
        pytest.param(
            ExperienceChange(action="add pattern", text="x", proposal_ids=[*TWO_PROPOSALS, "p-99"]),
            "invented proposal",
            id="unknown-third-supporter",
        ),
        pytest.param(
            ExperienceChange(
                action="add pattern", text="x", proposal_ids=[*THREE_PROPOSALS, "p-99"]
            ),
            "invented proposal",
            id="unknown-fourth-supporter",
        ),
        pytest.param(
            ExperienceChange(action="add alert", text="  ", proposal_ids=THREE_PROPOSALS),
            "empty text",
            id="blank-text",
        ),
        pytest.param(
            ExperienceChange(
                action="modify",
                experience_id="pattern-1",
                text=" null ",
                proposal_ids=THREE_PROPOSALS,
            ),
            "empty text",
            id="text-is-null",
        ),
        pytest.param(
            ExperienceChange(
                action="modify", experience_id="pattern-9", text="x", proposal_ids=THREE_PROPOSALS
            ),
            "unknown entry",
            id="modify-an-unknown-entry",
        ),
        pytest.param(
            ExperienceChange.model_validate({"action": "remove", "proposal_ids": THREE_PROPOSALS}),
            "unknown entry",
            id="remove-no-entry",
        ),
        pytest.param(
            ExperienceChange(
                action="downgrade", experience_id="pattern-9", proposal_ids=THREE_PROPOSALS
            ),
            "unknown entry",
            id="downgrade-an-unknown-entry",
        ),
    ],
)
def test_a_change_without_what_it_needs_is_refused_and_counted(
    change: ExperienceChange, reason: str
) -> None:
    """A model may invent proposals or entries, so a change is checked before it is carried out.

    It needs three different proposals of the pool, a text, and an entry that exists.
    """
    memory = memory_with_pool()

    adjusted_memory = apply_changes(memory, [change], PracticeSettings())

    assert adjusted_memory == memory.with_counts({f"refused: {reason}": 1})


@pytest.mark.parametrize(
    ("distinct_records", "outcome"),
    [(True, "refused: too little support"), (False, "added")],
)
def test_three_proposals_of_one_record_support_a_change_only_if_that_is_set(
    distinct_records: bool, outcome: str
) -> None:
    """By default they count as one, or else a single record could have an experience adopted."""
    memory = memory_with_pool()
    pool_of_one_record = tuple(
        proposal.model_copy(update={"sources": ("r1",)}) for proposal in memory.pool
    )
    memory = memory.replace(pool=pool_of_one_record)
    addition = ExperienceChange(action="add pattern", text="x", proposal_ids=THREE_PROPOSALS)

    adjusted_memory = apply_changes(
        memory, [addition], PracticeSettings(distinct_records=distinct_records)
    )

    assert adjusted_memory.counts == {outcome: 1}


def test_a_modified_entry_keeps_its_id_its_sources_and_the_old_wording() -> None:
    modification = ExperienceChange(
        action="modify",
        experience_id="pattern-1",
        text="Likes slow jazz",
        proposal_ids=THREE_PROPOSALS,
    )

    adjusted_memory = apply_changes(memory_with_pool(), [modification], PracticeSettings())

    (pattern,) = adjusted_memory.patterns
    assert pattern.id == "pattern-1"
    assert pattern.text == "Likes slow jazz"
    assert pattern.earlier == ("Likes jazz",)
    assert pattern.sources == ("a1", "r1", "all", "r2", "r3")


@pytest.mark.parametrize("action", ["downgrade", "remove", "Delete existing experience"])
def test_an_entry_that_is_downgraded_or_removed_goes_back_to_the_pool(action: str) -> None:
    """It is a proposal again, so later records can support it once more."""
    change = ExperienceChange.model_validate(
        {"action": action, "experience_id": "alert-1", "proposal_ids": THREE_PROPOSALS}
    )

    adjusted_memory = apply_changes(memory_with_pool(6), [change], PracticeSettings())

    assert adjusted_memory.alerts == ()
    proposal = adjusted_memory.pool[-1]
    assert proposal.id == "p-7"
    assert proposal.action == "add alert"
    assert proposal.content == "I overrate likes"
    assert proposal.sources == ("a2",)
    assert adjusted_memory.counts == {"downgraded": 1}


def test_a_model_is_told_to_downgrade_entries_in_place_of_removing_them() -> None:
    """A removed entry would be lost, but a downgraded one becomes a proposal again."""
    assert "remove" not in get_args(Adjustment)
    instructions = " ".join(AdjustExperience.instructions.split())
    assert "The way to remove an entry is to downgrade it" in instructions


def test_a_pattern_that_is_known_already_gets_more_support_and_is_not_repeated() -> None:
    """ "likes  jazz" is the known pattern "Likes jazz" in another spelling."""
    addition = ExperienceChange(
        action="add pattern", text="likes  jazz", proposal_ids=THREE_PROPOSALS
    )

    adjusted_memory = apply_changes(memory_with_pool(), [addition], PracticeSettings())

    (pattern,) = adjusted_memory.patterns
    assert pattern.text == "Likes jazz"
    assert pattern.support == ("p-1", "p-2", "p-3")
    assert adjusted_memory.counts == {"merged": 1}


def test_without_consensus_every_proposal_is_carried_out() -> None:
    """By consensus several proposals have to agree; the paper also measures PraMem without it."""
    memory = memory_with_pool(2)
    removal = Proposal(id="p-3", action="remove", target="alert-1")
    # The entry is gone by then.
    late_modification = Proposal(id="p-4", action="modify", target="alert-1", content="too late")
    memory = memory.replace(pool=(*memory.pool, removal, late_modification))

    adjusted_memory = adopt_all_proposals(memory, PracticeSettings(consensus=False))

    assert pattern_texts(adjusted_memory) == ["Likes jazz", "said 1", "said 2"]
    assert adjusted_memory.alerts == ()
    assert adjusted_memory.pool == ()
    assert adjusted_memory.counts == {"added": 2, "downgraded": 1, "refused: unknown entry": 1}


# The experience after each round. With `keep_rounds` a memory keeps the experience after every
# adjustment, and with `at_round` a program reads the experience as it was after that round.


def test_a_long_run_that_keeps_its_rounds_has_the_experience_of_shorter_runs(
    practised: Any,
) -> None:
    """So one run is enough to compare numbers of rounds."""
    long_run = practised(rounds=15, keep_rounds=True).memory

    assert [experience.round for experience in long_run.kept_rounds] == [0, 5, 10, 15]
    for rounds in (5, 10, 15):
        short_run = practised(rounds=rounds).memory
        assert long_run.at_round(rounds).patterns == short_run.patterns
        assert long_run.at_round(rounds).alerts == short_run.alerts

    # The rounds differ, or else the comparison would say nothing.
    distinct_patterns = {long_run.at_round(rounds).patterns for rounds in (5, 10, 15)}
    assert len(distinct_patterns) == 3


def test_programs_that_read_at_different_rounds_share_one_written_memory(scripted: Any) -> None:
    """`at_round` compares numbers of rounds, as Figure 4 does, with a single run of practice."""
    lm = scripted(practice_script())
    first_program = pramem(rounds=15, keep_rounds=True, at_round=5)
    patterns_by_round: dict[int | None, int] = {}

    with dspy.context(lm=lm):
        first_program(history=behavior(), **QUESTION)
        for at_round in (5, 12, 80, None):
            program = build(
                "pramem",
                "behavior-prediction",
                cache=first_program.cache,
                rounds=15,
                min_history=5,
                keep_rounds=True,
                at_round=at_round,
            )
            context = program(history=behavior(), **QUESTION).context
            patterns_by_round[at_round] = context.counts["patterns"]

    # The first pattern is the profile. Adjustments after the rounds 5, 10 and 15 add one each.
    assert patterns_by_round == {5: 1 + 1, 12: 1 + 2, 80: 1 + 3, None: 1 + 3}
    assert lm.engine.calls["useful_patterns"] == 15


@pytest.mark.parametrize(
    ("at_round", "texts"),
    [
        (0, []),
        (5, ["Likes jazz"]),
        (10, ["Likes jazz at night"]),
    ],
)
def test_a_program_that_reads_an_early_round_finds_no_later_experience(
    at_round: int, texts: list[str]
) -> None:
    """A program with `at_round` must nowhere see experience of later rounds."""
    early_pattern = Experience(id="pattern-1", kind="pattern", text="Likes jazz", sources=("r1",))
    late_pattern = Experience(
        id="pattern-1", kind="pattern", text="Likes jazz at night", sources=("r1", "r2")
    )
    kept_rounds = (
        RoundExperience(round=0),
        RoundExperience(round=5, patterns=(early_pattern,)),
        RoundExperience(round=10, patterns=(late_pattern,)),
    )
    memory = ExperienceMemory(patterns=(late_pattern,), kept_rounds=kept_rounds)
    method = pramem(alerts=False, keep_rounds=True, at_round=at_round).method

    hits = method.reader.search(memory, ["jazz"])[0]
    entries = method.reader.entries(memory)
    # Where nothing is recalled, a fallback would be shown.
    recalled_hits = method.recall(memory, Query(text="jazz")).context.hits

    assert [hit.text for hit in hits] == texts
    assert [entry.text for entry in entries] == texts
    assert [hit.text for hit in recalled_hits] == texts


def test_rounds_that_are_not_kept_cannot_be_read() -> None:
    with pytest.raises(UserError, match=r"at_round=5 .* set keep_rounds=true too"):
        pramem(at_round=5)


def test_an_entry_that_its_user_deleted_is_gone_from_the_kept_rounds(practised: Any) -> None:
    memory = practised(rounds=5, keep_rounds=True).memory
    deleted_pattern = memory.patterns[-1]
    deletion = Amendment(
        number=1,
        action="delete",
        entry=deleted_pattern.id,
        kind=deleted_pattern.kind,
        old_text=deleted_pattern.text,
        sources=deleted_pattern.sources,
    )

    visible_memory = pramem().method.reader.with_edits(memory, Amendments([deletion]))

    assert deleted_pattern.text in memory.model_dump_json()
    # The pool is not shown to the user, and may hold the words of proposals.
    assert deleted_pattern.text not in visible_memory.replace(pool=()).model_dump_json()
