"""PraMem with a scripted model: practice, reviews of proposals, adjustments, and answers.

PraMem learns from recorded actions of a user. A round of practice takes a past record, predicts
what the user did in it (a trial), compares that with what happened (a reflection), and proposes
experience: patterns of the user, and alerts to mistakes of the model. A proposal has to pass two
reviews: whether it depends on the records (groundedness), and whether it holds in other situations
(generality). Proposals that pass wait in the pool, until an adjustment adopts what several of them
support. An adjustment follows every fifth round.

`practise(rounds=5)` writes a history of the profile "Ann, 34, nurse", which is the first pattern,
and of the records a1 to a30. Only records with at least five others before them are practised on.
Of the record a7 the scripted model proposes "one of a7", "two of a7" and "three of a7". All pass
the reviews. An adjustment adopts one pattern, "agreed p-1", from the first proposals of three
records.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Action, UserError, build
from mempiler.memory.edits import Amendment, Amendments
from mempiler.programs.pramem.adjustment import adopt_all_proposals, apply_changes
from mempiler.programs.pramem.memory import (
    Experience,
    ExperienceMemory,
    Proposal,
    RoundExperience,
)
from mempiler.programs.pramem.samples import Sample, draw_samples
from mempiler.programs.pramem.settings import PracticeSettings
from mempiler.programs.pramem.writer import PracticeWriter
from mempiler.programs.threads import in_order
from mempiler.records import Behavior, Query
from mempiler.signatures.pramem import ExperienceChange

from .conftest import behavior_history, pramem_script, prompt_field

# The prompts of PraMem, each by the name of its first output field.
TRIAL = "useful_patterns"
TRIAL_WITHOUT_THINKING = "predicted_action"
REFLECTION = "tasks"
PROPOSALS_WITHOUT_REFLECTION = "proposals"
# The first review imagines that the records were others, and asks whether a proposal would change.
PLANS_OF_OTHER_RECORDS = "plans"
GROUNDEDNESS_REVIEW = "groundedness"
# The second review invents scenes, and asks in which of them a proposal was made.
INVENTED_SCENES = "virtual_scenes"
BLIND_REVIEW = "scene_choices"
OPEN_REVIEW = "generality"
ADJUSTMENT = "decisions"

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
    """Return the records a1, a2, ...: in "situation-7-x" the user did "action-7-x".

    The first of them has the number `start`.
    """
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


def test_each_round_has_six_prompts_and_every_fifth_round_an_adjustment(practise: Any) -> None:
    """In a round of practice the model predicts a recorded action of a user, and learns from it.

    It is asked to predict, to reflect and to propose, and then for two reviews of the proposals,
    each of which takes two prompts. An adjustment turns proposals that agree into experience.
    """
    result = practise(rounds=10)

    assert result.calls == {
        TRIAL: 10,
        REFLECTION: 10,
        PLANS_OF_OTHER_RECORDS: 10,
        GROUNDEDNESS_REVIEW: 10,
        INVENTED_SCENES: 10,
        BLIND_REVIEW: 10,
        ADJUSTMENT: 2,
    }


def test_proposals_that_support_an_adopted_pattern_leave_the_pool(practise: Any) -> None:
    """The scripted model makes three proposals a round, which wait in the pool.

    After the fifth round it adopts the pattern "agreed p-1", which three proposals support. The
    first pattern of a user is the profile, "Ann, 34, nurse".
    """
    memory = practise(rounds=5).memory

    proposals = 5 * 3
    supporters = 3
    assert pattern_texts(memory) == ["Ann, 34, nurse", "agreed p-1"]
    assert len(memory.pool) == proposals - supporters


def test_an_adopted_pattern_is_shown_in_later_rounds_alone(practise: Any) -> None:
    """A trial is the prompt that predicts a recorded action of the user. It shows known patterns.

    There are ten rounds with one trial each. After the fifth round the scripted model adopts the
    pattern "agreed p-1".
    """
    result = practise(rounds=10)

    shown_patterns = result.prompt_fields(TRIAL, "patterns")
    rounds_with_pattern = ["agreed p-1" in patterns for patterns in shown_patterns]
    assert rounds_with_pattern == [False] * 5 + [True] * 5


def test_the_memory_does_not_depend_on_which_round_ends_first(practise: Any) -> None:
    """Five rounds of practice run at the same time, in threads; `in_order` runs one after another.

    What the model learns must be the same, so that a run can be repeated.
    """
    concurrent_memory = practise(rounds=10, samples=2).memory
    with in_order():
        sequential_memory = practise(rounds=10, samples=2).memory

    assert sequential_memory == concurrent_memory


def shown_record_ids(lines: Sequence[str]) -> list[str]:
    """Return the ids of the records in lines of a prompt: a7 of "[a7] user: video; ..."."""
    return [line.split("]")[0].strip("[") for line in lines]


def test_a_trial_sees_the_profile_and_the_records_before_its_target(practise: Any) -> None:
    """A trial has the model predict the action of a record that is drawn at random, the target.

    It is shown the profile of the user, and what the user did before.
    """
    result = practise(rounds=1)

    [target_id] = practised_record_ids(result.memory)
    [shown_records] = result.prompt_fields(TRIAL, "recent_records")
    profile_line, *record_lines = shown_records.splitlines()
    assert profile_line == "[profile:1] profile: Ann, 34, nurse"
    # If the target is a7, these are a1 to a6.
    earlier_ids = [f"a{number}" for number in range(1, record_number(target_id))]
    assert shown_record_ids(record_lines) == earlier_ids


def test_a_trial_sees_the_situation_of_its_target_and_not_the_action(practise: Any) -> None:
    """A trial has the model predict the action of a record that is drawn at random, the target.

    In the record a7, the user did "action-7-x" in "situation-7-x".
    """
    result = practise(rounds=1)

    [target_id] = practised_record_ids(result.memory)
    target = record_number(target_id)
    [trial] = result.prompts_of(TRIAL)
    assert prompt_field(trial, "situation").endswith(f"user: video; situation-{target}-x")
    assert f"action-{target}-x" not in trial


def test_a_reflection_sees_the_thinking_of_the_trial(practise: Any) -> None:
    """A reflection is the prompt that finds out why the prediction of a trial was wrong.

    So it is shown what the model thought before it predicted "skipped".
    """
    trial_answer = {
        "useful_patterns": ["is a nurse"],
        "useful_alerts": ["mind the hour"],
        "reasoning": "nurses are tired",
        "predicted_action": "skipped",
    }

    result = practise(rounds=1, answers={TRIAL: trial_answer})

    [thinking] = result.prompt_fields(REFLECTION, "thinking")
    assert thinking == "is a nurse\nmind the hour\nnurses are tired"


@pytest.mark.parametrize("prompt", [TRIAL, REFLECTION])
def test_a_round_without_a_readable_answer_fails_and_practice_goes_on(
    practise: Any, prompt: str
) -> None:
    """A round has a trial, which predicts an action, and a reflection, which looks for mistakes.

    In all ten rounds the model answers one of them with "no", from which nothing can be read.
    """
    result = practise(rounds=10, answers={prompt: "no"})

    assert result.memory.counts == {"failed": 10}
    assert len(result.failures) == 10
    assert result.memory.waiting == 0


@pytest.mark.parametrize("review", [PLANS_OF_OTHER_RECORDS, BLIND_REVIEW])
def test_proposals_whose_review_cannot_be_read_are_dropped_and_counted(
    practise: Any, review: str
) -> None:
    """A round has three proposals, and two reviews of them: of groundedness and of generality.

    In all ten rounds the model answers one of the reviews with "no", from which nothing can be
    read.
    """
    result = practise(rounds=10, answers={review: "no"})

    assert result.memory.counts == {"malformed": 10 * 3}
    assert len(result.failures) == 10


def test_all_proposals_stay_in_the_pool_if_an_adjustment_cannot_be_read(practise: Any) -> None:
    """An adjustment adopts proposals that agree. It comes after the fifth and the tenth round.

    The model answers both with "no", from which nothing can be read. A round has three proposals.
    """
    result = practise(rounds=10, answers={ADJUSTMENT: "no"})

    assert len(result.memory.pool) == 10 * 3
    assert result.memory.counts["unreadable adjustments"] == 2
    assert len(result.failures) == 2


@pytest.mark.parametrize(
    "proposal",
    [
        pytest.param(
            {"action": "modify", "experience_id": "pattern-9", "content": "x"}, id="unknown entry"
        ),
        pytest.param({"action": "add pattern", "content": " "}, id="no content"),
    ],
)
def test_a_proposal_that_cannot_be_carried_out_is_counted_as_invalid(
    practise: Any, proposal: dict[str, str]
) -> None:
    """A proposal may add or change what is known of the user: at first one pattern, pattern-1."""
    answer = {"tasks": [], "proposals": [proposal]}

    memory = practise(rounds=1, answers={REFLECTION: answer}).memory

    assert memory.counts == {"invalid": 1}
    assert memory.pool == ()


def test_proposals_beyond_the_limit_of_a_round_are_counted_as_invalid(practise: Any) -> None:
    """The setting `proposals` allows one proposal a round, and the model makes two."""
    first_proposal = {"action": "add pattern", "content": "likes jazz"}
    second_proposal = {"action": "add pattern", "content": "one too many"}
    answer = {"tasks": [], "proposals": [first_proposal, second_proposal]}

    memory = practise(rounds=1, proposals=1, answers={REFLECTION: answer}).memory

    assert [proposal.content for proposal in memory.pool] == ["likes jazz"]
    assert memory.counts == {"invalid": 1, "pooled": 1}


def test_a_proposal_rests_on_the_practised_record_and_on_those_that_it_names(
    practise: Any,
) -> None:
    """The sources of a proposal are the records that it was made from. This one names a1."""
    modification = {
        "action": "modify",
        "experience_id": "pattern-1",
        "content": "is 35 now",
        "record_ids": "[a1]",
    }
    answer = {"tasks": [], "proposals": [modification]}

    memory = practise(rounds=1, answers={REFLECTION: answer}).memory

    [practised_id] = practised_record_ids(memory)
    [proposal] = memory.pool
    assert proposal.sources == (practised_id, "a1")


def test_the_action_of_a_proposal_is_read_in_the_words_of_the_model(practise: Any) -> None:
    """The prompt asks for "remove"."""
    removal = {
        "action": "Remove Existing Experience",
        "experience_id": "alert-2",
        "content": None,
    }
    answer = {"tasks": [], "proposals": [removal]}

    memory = practise(rounds=1, answers={REFLECTION: answer}).memory

    [proposal] = memory.pool
    assert proposal.action == "remove"
    assert proposal.target == "alert-2"


def test_without_new_proposals_no_review_and_no_adjustment_is_asked_for(practise: Any) -> None:
    """A reflection proposes what to learn from a record. Here it proposes nothing in five rounds.

    Reviews and adjustments are calls that would cost something.
    """
    result = practise(rounds=5, answers={REFLECTION: {"tasks": [], "proposals": []}})

    assert result.calls[GROUNDEDNESS_REVIEW] == 0
    assert result.calls[BLIND_REVIEW] == 0
    assert result.calls[ADJUSTMENT] == 0


@pytest.mark.parametrize(
    ("failed_record", "shown_records"),
    [
        pytest.param(19, ["a17", "a18"], id="a record that the memory still has"),
        pytest.param(2, [], id="a record that is older than all in the memory"),
    ],
)
def test_a_trial_that_is_repeated_sees_no_record_after_its_target(
    scripted: Any, failed_record: int, shown_records: list[str]
) -> None:
    """Practice on a record whose answers could not be read is repeated after later records came.

    A trial predicts what the user did in the record. If it saw later records, it would know the
    future. The memory has the records a17 to a20 by then.
    """
    # The memory keeps the newest of its 20 records, of which four fit into 60 tokens.
    memory = ExperienceMemory().with_records(actions(20)).mark_practised(max_tokens=60)
    assert [record.id for record in memory.records] == ["a17", "a18", "a19", "a20"]
    failed_item = Behavior.from_actions("failed", actions(count=1, start=failed_record))
    writer = PracticeWriter(PracticeSettings(practice_tokens=60))
    lm = scripted(pramem_script())

    with dspy.context(lm=lm):
        writer.update_with_part(memory, failed_item)

    [trial] = [text for kind, text in lm.engine.prompts if kind == TRIAL]
    lines = prompt_field(trial, "recent_records").splitlines()
    assert shown_record_ids(lines) == shown_records


def test_a_stored_memory_practises_only_on_records_that_came_since_the_last_practice(
    scripted: Any, store: Any
) -> None:
    """A user's records are practised on as they come, and none is paid for twice.

    There are more rounds than records, so that each record is practised on if at least five came
    before it. First a1 to a10 are stored, and then a11 to a20.
    """
    # Without adjustments all proposals stay in the pool, where they tell what was practised on.
    lm = scripted(pramem_script(decisions={"decisions": "-", "changes": []}))
    profile, first_10_records, next_10_records = behavior_history(records=20).items

    memory = pramem(rounds=40, min_history=5).memory(store, "ann", lm=lm)
    memory.add(profile, remember=False)
    memory.add(first_10_records)
    practised_at_first = practised_record_ids(memory.read())

    # A new program opens the memory, as after a restart.
    memory = pramem(rounds=40, min_history=5).memory(store, "ann", lm=lm)
    memory.add(next_10_records)
    practised_later = practised_record_ids(memory.read())[len(practised_at_first) :]

    assert set(practised_at_first) == {"a6", "a7", "a8", "a9", "a10"}
    assert set(practised_later) == {record.id for record in actions(10, start=11)}
    assert lm.engine.calls[TRIAL] == len(practised_at_first) + len(practised_later)


# Reviews of proposals. There are three proposals about a record such as a7: "one of a7", "two of
# a7" and "three of a7". With `blind=False` the review of generality asks for each proposal whether
# it is general; otherwise the reviewer has to guess the scene that the proposal was made from.


def first_words_of_pool(memory: ExperienceMemory) -> list[str]:
    """Return the first words of the proposals that passed: some of "one", "two", "three"."""
    return [proposal.content.split()[0] for proposal in memory.pool]


def review_answer(review: str, field: str, one: Any, two: Any, three: Any) -> dict[str, Any]:
    """Return the answer of a review to the proposals that begin with "one", "two" and "three".

    Args:
        review: The output of the review, a list.
        field: The field of its elements that says whether a proposal passes.
        one: What the review says of the first proposal; nothing if this is "missing".
        two: What it says of the second.
        three: What it says of the third.
    """
    # The prompt of a review calls the proposals r1, r2 and r3.
    verdicts = {"r1": one, "r2": two, "r3": three}
    rows: list[dict[str, Any]] = []
    for proposal_id, verdict in verdicts.items():
        if verdict != "missing":
            rows.append({"proposal": proposal_id, field: verdict})
    return {review: rows}


def groundedness(one: Any, two: Any, three: Any) -> dict[str, Any]:
    """Return an answer of the review that asks whether a proposal depends on the records."""
    return review_answer("groundedness", "sensitive", one, two, three)


def generality(one: Any, two: Any, three: Any) -> dict[str, Any]:
    """Return an answer of the review that asks whether a proposal holds in other scenes."""
    return review_answer("generality", "general", one, two, three)


def scene_choices(one: str, two: str, three: str) -> dict[str, Any]:
    """Return an answer of the blind review: the letter of a scene for each proposal."""
    return review_answer("scene_choices", "situation", one, two, three)


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (False, "ungrounded"),
        # What the reviewer does not say clearly cannot be used.
        ("missing", "malformed"),
        ("perhaps", "malformed"),
        (None, "malformed"),
    ],
)
def test_a_proposal_that_does_not_clearly_depend_on_the_records_is_dropped(
    practise: Any, verdict: Any, outcome: str
) -> None:
    """The groundedness review asks whether a proposal would change if the records were others.

    Here it says so of the first and of the third proposal. The verdict is that on the second.
    """
    review = groundedness(one=True, two=verdict, three="Yes")

    memory = practise(rounds=1, answers={GROUNDEDNESS_REVIEW: review}).memory

    assert first_words_of_pool(memory) == ["one", "three"]
    assert memory.counts == {"pooled": 2, outcome: 1}
    # A proposal with a verdict is enough: the record is not practised on again.
    assert memory.failed_items == ()


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [(False, "specific"), ("no", "specific"), (0.5, "malformed")],
)
def test_a_proposal_that_is_not_clearly_general_is_dropped(
    practise: Any, verdict: Any, outcome: str
) -> None:
    """A proposal should hold in other scenes too, or else it is too specific.

    Here the review says that the first and the third proposal are general. The verdict is that on
    the second.
    """
    review = generality(one=True, two=verdict, three="true")

    memory = practise(rounds=1, blind=False, answers={OPEN_REVIEW: review}).memory

    assert first_words_of_pool(memory) == ["one", "three"]
    assert memory.counts == {"pooled": 2, outcome: 1}


def test_a_record_of_which_no_proposal_could_be_judged_is_tried_again(practise: Any) -> None:
    """The failed items of a memory are those that wait for another try."""
    review = groundedness(one="perhaps", two=None, three="missing")

    memory = practise(rounds=1, answers={GROUNDEDNESS_REVIEW: review}).memory

    assert memory.counts == {"malformed": 3}
    assert len(memory.failed_items) == 1


def test_generality_is_only_asked_of_grounded_proposals(practise: Any) -> None:
    """The second review costs less if it is not asked about what the first has rejected.

    Here only the second proposal, "two of ...", depends on the records.
    """
    review = groundedness(one=False, two=True, three=False)

    result = practise(rounds=1, blind=False, answers={GROUNDEDNESS_REVIEW: review})

    [proposals] = result.prompt_fields(OPEN_REVIEW, "proposals")
    assert "two of" in proposals
    assert "one of" not in proposals
    assert "three of" not in proposals


def test_long_scenes_are_cut_in_the_prompts_on_generality(practise: Any) -> None:
    """A scene is the situation of a record, such as "video; situation-7-x", and may be a long text.

    The setting `scene_chars` says how many characters of it a prompt shows.
    """
    result = practise(rounds=1, scene_chars=8, blind=False)

    [situation] = result.prompt_fields(INVENTED_SCENES, "situation")
    assert situation.splitlines()[0] == "video; s..."
    [candidates] = result.prompt_fields(OPEN_REVIEW, "candidates")
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
    lines = prompt_field(review_prompt, "candidates").splitlines()
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


def test_a_blind_review_shows_one_true_scene_among_the_invented_ones(practise: Any) -> None:
    """A proposal that holds in one scene alone is too specific, which a blind review finds out.

    The reviewer is shown the true scene, in which the user was, and scenes that a model invented,
    and guesses from a proposal which is the true one.
    """
    invented_scenes = ["video; a concert", "video; a football match", "video; a recipe"]

    result = practise(
        rounds=10,
        virtual_scenes=3,
        answers={INVENTED_SCENES: {"virtual_scenes": invented_scenes}},
    )

    review_prompts = result.prompts_of(BLIND_REVIEW)
    assert len(review_prompts) == 10
    for review_prompt in review_prompts:
        scenes = scenes_by_letter(review_prompt)
        scenes.pop(letter_of_true_scene(review_prompt))
        assert sorted(scenes.values()) == invented_scenes


def test_the_true_scene_of_a_blind_review_is_the_situation_of_the_practised_record(
    practise: Any,
) -> None:
    """A blind review shows the true scene, in which the user was, among invented scenes.

    The situation of the record a7 is "video; situation-7-x".
    """
    result = practise(rounds=1)

    [record_id] = practised_record_ids(result.memory)
    [review_prompt] = result.prompts_of(BLIND_REVIEW)
    true_scene = scenes_by_letter(review_prompt)[letter_of_true_scene(review_prompt)]
    assert true_scene == f"video; situation-{record_number(record_id)}-x"


def test_the_true_scene_does_not_have_the_same_letter_in_every_round(practise: Any) -> None:
    """A blind review shows the true scene among invented ones, as one of the letters A to H.

    No reviewer must know the true scene by its place, so the places are drawn at random.
    """
    result = practise(rounds=10)

    letters = {letter_of_true_scene(prompt) for prompt in result.prompts_of(BLIND_REVIEW)}
    assert len(letters) > 3


def test_the_places_of_the_true_scenes_are_the_same_in_a_second_run(practise: Any) -> None:
    """The true scene of a blind review stands at a random place among invented scenes.

    The places are drawn with the seed of the settings, so a run can be repeated.
    """
    first_run = practise(rounds=10)
    second_run = practise(rounds=10)

    # Rounds run concurrently, so only the order of the prompts may differ.
    first_candidates = sorted(first_run.prompt_fields(BLIND_REVIEW, "candidates"))
    second_candidates = sorted(second_run.prompt_fields(BLIND_REVIEW, "candidates"))
    assert first_candidates == second_candidates


def letter_of_an_invented_scene(review_prompt: str) -> str:
    """Return the letter of a scene that is not the true one."""
    letters = set(scenes_by_letter(review_prompt)) - {letter_of_true_scene(review_prompt)}
    return min(letters)


@pytest.mark.parametrize("choice", ["LETTER", "Situation LETTER", "[LETTER]"])
def test_a_proposal_by_which_a_reviewer_finds_the_true_scene_is_too_specific(
    practise: Any, choice: str
) -> None:
    """The reviewer is told neither which scene is true, nor which proposal is about which scene.

    Here the reviewer finds the true scene for the second proposal alone. The first fits several
    scenes, and the third seems to be about an invented one.
    """

    def choose_scenes(prompt: str, n: int) -> dict[str, Any]:
        return scene_choices(
            one="several",
            two=choice.replace("LETTER", letter_of_true_scene(prompt)),
            three=choice.replace("LETTER", letter_of_an_invented_scene(prompt)),
        )

    memory = practise(rounds=1, answers={BLIND_REVIEW: choose_scenes}).memory

    assert first_words_of_pool(memory) == ["one", "three"]
    assert memory.counts == {"pooled": 2, "specific": 1}


def test_a_proposal_for_which_a_reviewer_chooses_no_scene_is_dropped(practise: Any) -> None:
    """A blind review shows the scenes A to H, so there is no scene Z."""
    choices = scene_choices(one="Z", two="none", three="perhaps A")

    memory = practise(rounds=1, answers={BLIND_REVIEW: choices}).memory

    assert memory.pool == ()
    assert memory.counts == {"malformed": 3}


# Answers


class Answer(NamedTuple):
    """A prediction of PraMem, and the last prompt, which asked for it."""

    prediction: Any
    prompt: str


def answer_after_practice(scripted: Any, two_step: bool) -> Answer:
    """Practise on the records a1 to a30, and ask a question when a31 to a40 have come, too."""
    lm = scripted(pramem_script())
    program = pramem(rounds=5, two_step=two_step)
    newest_batch = behavior_history(records=40).items[-1]
    with dspy.context(lm=lm):
        prediction = program(
            history=behavior_history(records=30), recent=[newest_batch], **QUESTION
        )
    _, prompt = lm.engine.prompts[-1]
    return Answer(prediction, prompt)


@pytest.mark.parametrize("two_step", [False, True])
def test_the_answer_prompt_shows_the_profile_and_the_newest_records(
    scripted: Any, two_step: bool
) -> None:
    """A user's newest records tell most about the next action. Here the newest record is a40."""
    prediction, prompt = answer_after_practice(scripted, two_step)

    assert prediction.answer == "Yes"
    lines = prompt_field(prompt, "records").splitlines()
    assert lines[0] == "[profile:1] profile: Ann, 34, nurse"
    assert lines[-1].endswith("video; situation-40-x => action-40-x")


@pytest.mark.parametrize("two_step", [False, True])
def test_the_answer_prompt_shows_no_proposal(scripted: Any, two_step: bool) -> None:
    """A proposal waits in the pool to be confirmed, so an answer must not rest on it.

    Each round of practice on a record such as a7 proposes "one of a7", "two of a7" and so on.
    """
    prediction, prompt = answer_after_practice(scripted, two_step)

    assert prediction.memory.pool
    for waiting_proposal in prediction.memory.pool:
        assert waiting_proposal.content not in prompt


# Ablations: the paper leaves out one part of PraMem at a time, to measure what the part is worth


@pytest.mark.parametrize(
    ("settings", "missing", "additional"),
    [
        ({"deep_thinking": False}, {TRIAL}, {TRIAL_WITHOUT_THINKING}),
        ({"reflection": False}, {REFLECTION}, {PROPOSALS_WITHOUT_REFLECTION}),
        ({"consensus": False}, {ADJUSTMENT}, set()),
        ({"groundedness": False}, {PLANS_OF_OTHER_RECORDS, GROUNDEDNESS_REVIEW}, set()),
        ({"generalizability": False}, {INVENTED_SCENES, BLIND_REVIEW}, set()),
        ({"blind": False}, {BLIND_REVIEW}, {OPEN_REVIEW}),
    ],
)
def test_a_part_that_is_switched_off_asks_none_of_its_prompts_and_changes_no_other(
    practise: Any, settings: dict[str, bool], missing: set[str], additional: set[str]
) -> None:
    """The paper measures what each part of PraMem is worth by leaving it out.

    A part has prompts of its own. Without some parts other prompts take their place.
    """
    full = practise(rounds=5)
    ablated = practise(rounds=5, **settings)

    assert set(ablated.calls) == (set(full.calls) - missing) | additional
    assert ablated.memory.counts["pooled"] == full.memory.counts["pooled"]
    # These prompts depend on the records alone, so they are the same without another part.
    for output in {PLANS_OF_OTHER_RECORDS, INVENTED_SCENES} - missing:
        assert sorted(ablated.prompts_of(output)) == sorted(full.prompts_of(output))


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
    """A run of practice draws records at random, and has the model predict an action in each.

    Records a1, a2, ... have come before a first run, and more before a second one. A run must not
    draw records that came before the run before it.
    """
    for run in runs:
        for target_number in target_numbers(run.samples):
            assert run.earlier_record_count < target_number <= run.record_count
            records_before_target = target_number - 1
            assert records_before_target >= run.settings.min_history


@given(runs=ANY_TWO_RUNS)
def test_a_sample_shows_the_records_right_before_its_target_and_not_its_outcome(
    runs: tuple[PracticeRun, PracticeRun],
) -> None:
    """A model has to predict what the user did in a record, the target: its outcome.

    So it is shown the records right before the target, and must not be shown the outcome.
    """
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
    """By the weighting "uniform" all records are equally likely to be drawn for practice.

    If the settings want more samples than there are records, every record is drawn.
    """
    for run in runs:
        targets = target_numbers(run.samples)
        assert len(targets) == min(run.wanted_sample_count, run.drawable_record_count)
        assert len(set(targets)) == len(targets)


def test_fewer_rounds_draw_the_first_of_the_same_samples() -> None:
    """A sample is a record that the model practises on, drawn at random; each round has one.

    So a longer run goes through the rounds of a shorter one, and then further.
    """
    memory = ExperienceMemory().with_records(actions(50))

    samples_of_30_rounds = draw(memory, rounds=30, seed=3)
    samples_of_10_rounds = draw(memory, rounds=10, seed=3)
    samples_of_another_seed = draw(memory, rounds=10, seed=4)

    assert samples_of_10_rounds == samples_of_30_rounds[:10]
    assert samples_of_another_seed != samples_of_10_rounds


def record(record_id: str, questions: tuple[str, ...] | None = None) -> Action:
    """Return a record of a user who liked a song, with the questions of a benchmark on it."""
    return Action(
        id=record_id, scene="music", situation="a song", action="liked", questions=questions
    )


def test_a_record_without_questions_is_not_drawn_if_others_have_some() -> None:
    """Practice answers the questions that a benchmark asks about a record.

    Of the four records, a2 and a4 have none. The first record, a1, is never drawn, since no other
    comes before it.
    """
    records = [
        record("a1", questions=("Like it?",)),
        record("a2", questions=()),
        record("a3", questions=("Like it?", "Share it?")),
        record("a4", questions=()),
    ]
    memory = ExperienceMemory().with_records(records)

    samples = draw(memory, rounds=9, min_history=1)

    assert [sample.target.id for sample in samples] == ["a3"]


@pytest.mark.parametrize(
    ("max_chars", "scene"),
    [
        (100, "music; a song 1. Like it? 2. Share it?"),
        (5, "music... 1. Like it? 2. Share it?"),
    ],
)
def test_a_review_of_generality_is_shown_the_scene_cut_short_and_all_questions(
    max_chars: int, scene: str
) -> None:
    """The review asks whether a proposal holds in other scenes, too.

    The practised record a2 is of the scene "music", its situation is "a song", and a benchmark asks
    two questions about it.
    """
    records = [record("a1"), record("a2", questions=("Like it?", "Share it?"))]
    memory = ExperienceMemory().with_records(records)

    (sample,) = draw(memory, rounds=1, min_history=1)

    assert sample.true_scene(max_chars) == scene


# Adjustment of the experience


def proposal(number: int, sources: tuple[str, ...]) -> Proposal:
    """Return the proposal p-1, p-2, ... of a new pattern, which rests on some records."""
    return Proposal(id=f"p-{number}", action="add pattern", content=f"p {number}", sources=sources)


def memory_with_pool(*pool: Proposal) -> ExperienceMemory:
    """Return a memory with the pattern "Likes jazz", the alert "I overrate likes", and a pool.

    Their ids are pattern-1 and alert-1. They rest on the records a1 and a2.
    """
    memory = ExperienceMemory().with_initial_entry("pattern", "Likes jazz", ("a1",))
    memory = memory.with_initial_entry("alert", "I overrate likes", ("a2",))
    return memory.replace(pool=pool, issued={**memory.issued, "p": len(pool)})


def memory_with_four_proposals() -> ExperienceMemory:
    """Return a `memory_with_pool` of the proposals p-1 to p-4, each of another record."""
    return memory_with_pool(
        proposal(1, sources=("r1",)),
        proposal(2, sources=("r2",)),
        proposal(3, sources=("r3",)),
        proposal(4, sources=("r4",)),
    )


THREE_PROPOSALS = ["p-1", "p-2", "p-3"]
"""As many proposals as a change needs."""


def test_a_pattern_that_three_proposals_support_is_adopted_and_they_leave_the_pool() -> None:
    """An adjustment names the proposals that support a change, and three are enough.

    The pool has the proposals p-1 to p-4, of which p-2 does not support the new pattern.
    """
    memory = memory_with_four_proposals()
    addition = ExperienceChange(
        action="add pattern", text="Skips ads", proposal_ids=["p-1", "p-3", "p-4"]
    )

    adjusted_memory = apply_changes(memory, [addition], PracticeSettings())

    assert pattern_texts(adjusted_memory) == ["Likes jazz", "Skips ads"]
    assert [waiting.id for waiting in adjusted_memory.pool] == ["p-2"]
    assert adjusted_memory.counts == {"added": 1}


def test_an_adopted_pattern_rests_on_all_records_of_the_proposals_that_support_it() -> None:
    """A user can see from which records a pattern was learned; a record is named once."""
    memory = memory_with_pool(
        proposal(1, sources=("r1", "r9")),
        proposal(2, sources=("r2",)),
        proposal(3, sources=("r3", "r9")),
    )
    addition = ExperienceChange(
        action="add pattern", text="Skips ads", proposal_ids=["p-1", "p-2", "p-3"]
    )

    adjusted_memory = apply_changes(memory, [addition], PracticeSettings())

    new_pattern = adjusted_memory.patterns[-1]
    assert new_pattern.support == ("p-1", "p-2", "p-3")
    assert new_pattern.sources == ("r1", "r9", "r2", "r3")


def assert_refused(change: ExperienceChange, reason: str) -> None:
    """Assert that a change is not carried out, and that the memory counts why.

    The pool of the memory has the proposals p-1 to p-4. Its entries are pattern-1 and alert-1.
    """
    memory = memory_with_four_proposals()

    adjusted_memory = apply_changes(memory, [change], PracticeSettings())

    assert adjusted_memory == memory.with_counts({f"refused: {reason}": 1})


@pytest.mark.parametrize(
    "proposal_ids",
    [
        pytest.param([], id="none"),
        pytest.param(["p-1", "p-2"], id="two"),
        pytest.param(["p-1", "p-1", "p-1"], id="one three times"),
    ],
)
def test_a_change_that_fewer_than_three_proposals_support_is_refused(
    proposal_ids: list[str],
) -> None:
    addition = ExperienceChange(action="add pattern", text="x", proposal_ids=proposal_ids)
    downgrade = ExperienceChange(
        action="downgrade", experience_id="alert-1", proposal_ids=proposal_ids
    )

    assert_refused(addition, reason="too little support")
    assert_refused(downgrade, reason="too little support")


@pytest.mark.parametrize("proposal_ids", [["p-1", "p-2", "p-99"], ["p-1", "p-2", "p-3", "p-99"]])
def test_a_change_that_names_a_proposal_which_does_not_exist_is_refused(
    proposal_ids: list[str],
) -> None:
    """A model may invent proposals, here p-99; the pool has p-1 to p-4."""
    addition = ExperienceChange(action="add pattern", text="x", proposal_ids=proposal_ids)

    assert_refused(addition, reason="invented proposal")


@pytest.mark.parametrize("text", ["  ", " null "])
def test_a_change_without_a_text_is_refused(text: str) -> None:
    addition = ExperienceChange(action="add alert", text=text, proposal_ids=THREE_PROPOSALS)
    modification = ExperienceChange(
        action="modify", experience_id="pattern-1", text=text, proposal_ids=THREE_PROPOSALS
    )

    assert_refused(addition, reason="empty text")
    assert_refused(modification, reason="empty text")


@pytest.mark.parametrize("action", ["modify", "downgrade", "remove"])
@pytest.mark.parametrize("experience_id", ["pattern-9", None])
def test_a_change_of_an_entry_that_does_not_exist_is_refused(
    action: str, experience_id: str | None
) -> None:
    """A model may invent entries; the memory has pattern-1 and alert-1."""
    change = ExperienceChange.model_validate(
        {
            "action": action,
            "experience_id": experience_id,
            "text": "x",
            "proposal_ids": THREE_PROPOSALS,
        }
    )

    assert_refused(change, reason="unknown entry")


@pytest.mark.parametrize(
    ("distinct_records", "outcome"),
    [(True, "refused: too little support"), (False, "added")],
)
def test_three_proposals_of_one_record_support_a_change_only_if_that_is_set(
    distinct_records: bool, outcome: str
) -> None:
    """By default proposals of the same record count as one.

    Otherwise what happened once could be adopted as a pattern of the user.
    """
    memory = memory_with_pool(
        proposal(1, sources=("r1",)),
        proposal(2, sources=("r1",)),
        proposal(3, sources=("r1",)),
    )
    addition = ExperienceChange(action="add pattern", text="x", proposal_ids=["p-1", "p-2", "p-3"])
    settings = PracticeSettings(distinct_records=distinct_records)

    adjusted_memory = apply_changes(memory, [addition], settings)

    assert adjusted_memory.counts == {outcome: 1}


def test_a_modified_entry_keeps_its_id_its_sources_and_the_old_wording() -> None:
    """The entry pattern-1 says "Likes jazz", which the record a1 has shown.

    Three proposals, from the records r1, r2 and r3, support another wording.
    """
    memory = memory_with_four_proposals()
    modification = ExperienceChange(
        action="modify",
        experience_id="pattern-1",
        text="Likes slow jazz",
        proposal_ids=["p-1", "p-2", "p-3"],
    )

    adjusted_memory = apply_changes(memory, [modification], PracticeSettings())

    (pattern,) = adjusted_memory.patterns
    assert pattern.id == "pattern-1"
    assert pattern.text == "Likes slow jazz"
    assert pattern.earlier == ("Likes jazz",)
    assert pattern.sources == ("a1", "r1", "r2", "r3")


@pytest.mark.parametrize("action", ["downgrade", "remove", "Delete existing experience"])
def test_an_entry_that_is_downgraded_or_removed_goes_back_to_the_pool(action: str) -> None:
    """An entry that is taken back is a proposal again, so later records can support it once more.

    The entry alert-1 says "I overrate likes", which the record a2 has shown. The pool has the
    proposals p-1 to p-4, of which three support the change.
    """
    memory = memory_with_four_proposals()
    change = ExperienceChange.model_validate(
        {"action": action, "experience_id": "alert-1", "proposal_ids": ["p-1", "p-2", "p-3"]}
    )

    adjusted_memory = apply_changes(memory, [change], PracticeSettings())

    assert adjusted_memory.alerts == ()
    new_proposal = adjusted_memory.pool[-1]
    assert new_proposal.id == "p-5"
    assert new_proposal.action == "add alert"
    assert new_proposal.content == "I overrate likes"
    assert new_proposal.sources == ("a2",)
    assert adjusted_memory.counts == {"downgraded": 1}


def test_a_pattern_that_is_known_already_gets_more_support_and_is_not_repeated() -> None:
    """The memory has the pattern "Likes jazz", and the model adds "likes  jazz"."""
    memory = memory_with_four_proposals()
    addition = ExperienceChange(
        action="add pattern", text="likes  jazz", proposal_ids=["p-1", "p-2", "p-3"]
    )

    adjusted_memory = apply_changes(memory, [addition], PracticeSettings())

    (pattern,) = adjusted_memory.patterns
    assert pattern.text == "Likes jazz"
    assert pattern.support == ("p-1", "p-2", "p-3")
    assert adjusted_memory.counts == {"merged": 1}


def test_without_consensus_every_proposal_is_carried_out() -> None:
    """With consensus several proposals have to agree; the paper also measures PraMem without it.

    At the beginning the memory has the pattern "Likes jazz" and the alert alert-1.
    """
    memory = memory_with_pool(
        Proposal(id="p-1", action="add pattern", content="Skips ads"),
        Proposal(id="p-2", action="remove", target="alert-1"),
    )

    adjusted_memory = adopt_all_proposals(memory, PracticeSettings(consensus=False))

    assert pattern_texts(adjusted_memory) == ["Likes jazz", "Skips ads"]
    assert adjusted_memory.alerts == ()
    assert adjusted_memory.pool == ()


# The experience after each round. With `keep_rounds` a memory keeps the experience after every
# adjustment, and with `at_round` a program reads the experience as it was after that round.


def test_a_long_run_that_keeps_its_rounds_has_the_experience_of_shorter_runs(
    practise: Any,
) -> None:
    """One run is enough to compare numbers of rounds, as in Figure 4 of the paper.

    With `keep_rounds` a memory keeps the experience that it had after every fifth round.
    """
    long_run = practise(rounds=15, keep_rounds=True).memory

    assert [experience.round for experience in long_run.kept_rounds] == [0, 5, 10, 15]
    for rounds in (5, 10, 15):
        short_run = practise(rounds=rounds).memory
        assert long_run.at_round(rounds).patterns == short_run.patterns
        assert long_run.at_round(rounds).alerts == short_run.alerts

    # The rounds differ, or else the comparison would say nothing.
    distinct_patterns = {long_run.at_round(rounds).patterns for rounds in (5, 10, 15)}
    assert len(distinct_patterns) == 3


def test_programs_that_read_at_different_rounds_share_one_written_memory(scripted: Any) -> None:
    """A program with `at_round=5` answers from the experience after five rounds of practice.

    Programs with other values read the same memory, so that practice is paid for once. The first
    pattern of this user is the profile. After the rounds 5, 10 and 15 the scripted model adds one.
    """
    lm = scripted(pramem_script())
    history = behavior_history(records=30)
    first_program = pramem(rounds=15, keep_rounds=True)
    patterns_by_round: dict[int, int] = {}

    with dspy.context(lm=lm):
        first_program(history=history, **QUESTION)
        for at_round in (5, 12, 80):
            cache = first_program.cache
            program = pramem(rounds=15, keep_rounds=True, at_round=at_round, cache=cache)
            context = program(history=history, **QUESTION).context
            patterns_by_round[at_round] = context.counts["patterns"]

    assert patterns_by_round == {5: 2, 12: 3, 80: 4}
    # There were 15 rounds of practice in all.
    assert lm.engine.calls[TRIAL] == 15


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
    """A program with `at_round=5` must nowhere see what was learned in later rounds.

    The memory has learned "Likes jazz" by round 5, and "Likes jazz at night" by round 10.
    """
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

    found_hits = method.reader.search(memory, ["jazz"])[0]
    listed_entries = method.reader.entries(memory)
    recalled_hits = method.recall(memory, Query(text="jazz")).context.hits

    assert [hit.text for hit in found_hits] == texts
    assert [entry.text for entry in listed_entries] == texts
    assert [hit.text for hit in recalled_hits] == texts


def test_rounds_that_are_not_kept_cannot_be_read() -> None:
    """With `at_round=5` a program reads the experience as it was after five rounds of practice.

    A memory keeps that only with `keep_rounds`, which is not set here.
    """
    with pytest.raises(UserError, match=r"at_round=5 .* set keep_rounds=true too"):
        pramem(at_round=5)


def test_an_entry_that_its_user_deleted_is_gone_from_the_kept_rounds(practise: Any) -> None:
    """With `keep_rounds` a memory keeps the experience after every fifth round, in copies.

    None of the copies may still show an entry that a user has deleted.
    """
    memory = practise(rounds=5, keep_rounds=True).memory
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

    assert deleted_pattern.text in str(memory.kept_rounds)
    assert deleted_pattern.text not in str(visible_memory.kept_rounds)
    assert deleted_pattern.text not in pattern_texts(visible_memory)
