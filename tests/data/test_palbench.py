"""PAL-Bench: histories, what is asked in each part, metrics, plans and simulated dialogues.

PAL-Bench follows a user over sessions. A session has logs of the user's devices, and a dialogue
with an assistant about some topics. The four parts of the benchmark ask for what the user needs
(restate), for a solution (generate), for the best two of eight solutions (select), and for a whole
dialogue.

In the part "dialogue" a model plays the user, and talks with our assistant and with a rival. Judges
compare both dialogues. A plan says what user and assistant do in each turn, such as a question or a
proposal.
"""

import copy
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from mempiler import UserError
from mempiler.data.catalog import benchmark
from mempiler.data.palbench.benchmark import NeedsJudge, words
from mempiler.data.palbench.dialogue import (
    Conversation,
    NeedUnderstandingJudge,
    PalDialogue,
    PreferenceUnderstandingJudge,
    SimulatedUser,
    compare,
    converse,
)
from mempiler.data.palbench.plans import PLANS_FILE, PlannedTurn, drawn_plan, read_plans
from mempiler.data.palbench.topics import Persona
from mempiler.data.samples import sample as sample_folder
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.errors import DataError
from mempiler.programs.adapter import adapter
from mempiler.signatures.pal import USER_ACTIONS

from .conftest import ASSISTANT_ACTIONS_AFTER, prompts_to
from .forms import EXAMPLE_FILES, load, write_files

PARTS = ("restate", "generate", "select", "dialogue")
FILES = EXAMPLE_FILES["palbench.restate"]
"""Four sessions of one user. Two are the history; the other two are asked about."""


def load_part(folder: Path, part: str, **options: Any) -> Any:
    """Load a part of the benchmark from the example files."""
    return benchmark(f"palbench.{part}", write_files(folder, FILES), **options)


def texts_of_turns(history: Any) -> list[str]:
    """Return the texts of all turns."""
    all_texts: list[str] = []
    for item in history:
        all_texts.extend(turn.text for turn in item.turns)
    return all_texts


@pytest.mark.parametrize("part", PARTS)
def test_the_dialogue_that_a_question_is_about_is_in_the_history_of_later_questions_only(
    tmp_path: Path, part: str
) -> None:
    """A session has logs and then a dialogue. The questions are about the sessions 2 and 3.

    The logs of session 2 are in the history of both, and its dialogue only in the later one.
    """
    first_question, second_question = load_part(tmp_path, part).examples

    session_0 = ["log 0a", "log 0b", "help 0?", "why 0?", "yes 0", "so 0"]
    session_1 = ["log 1a", "log 1b", "help 1?", "why 1?", "yes 1", "so 1"]
    logs_2 = ["log 2a", "log 2b"]
    assert texts_of_turns(first_question.history) == [*session_0, *session_1, *logs_2]

    dialogue_2 = ["help 2?", "why 2?", "yes 2", "so 2"]
    logs_3 = ["log 3a", "log 3b"]
    earlier_texts = texts_of_turns(first_question.history)
    assert texts_of_turns(second_question.history) == [*earlier_texts, *dialogue_2, *logs_3]


def test_later_histories_begin_with_earlier_ones(tmp_path: Path) -> None:
    """The memory of the second question is made by going on with the memory of the first.

    `prefixes` has a digest of each beginning of a history.
    """
    first, second = (example.history for example in load_part(tmp_path, "restate").examples)

    assert second.prefixes[: len(first)] == first.prefixes


def test_a_log_after_its_dialogue_is_in_no_history(tmp_path: Path) -> None:
    """The dialogue of the session is on 20 March, 20:00. A log is a minute later."""

    def add_log_after_its_dialogue(users: Any) -> None:
        late_log = {"timestamp": "2024-03-20 20:01", "content": "later"}
        users["u1"]["query"][0]["logs"].append(late_log)

    loaded = load(tmp_path, "palbench.restate", add_log_after_its_dialogue)

    for example in loaded.examples:
        assert "later" not in texts_of_turns(example.history)


def test_the_option_show_logs_shows_the_logs_of_the_current_session_with_a_selection(
    tmp_path: Path,
) -> None:
    """The first question is about the third session. Its logs are the item L3 of the history."""
    example = load_part(tmp_path, "select", show_logs=True).examples[0]
    [shown_item] = example.inputs()["recent"]
    assert shown_item.id == "L3"


@pytest.mark.parametrize(
    ("language", "categories"),
    [(None, ["zh"]), ("zh", ["zh"]), ("en", ["en"]), ("all", ["zh", "en"])],
)
def test_the_language_chooses_from_a_folder_of_both(
    tmp_path: Path, language: str | None, categories: list[str]
) -> None:
    """Without an option the Chinese file is read, which is the original.

    需要休息 means "needs rest"; by such texts the language is recognized.
    """
    english = FILES["input.json"]
    chinese = copy.deepcopy(english)
    for sample in chinese["u1"]["query"]:
        sample["topics"]["topic-1"]["requirement"] = "需要休息"
    write_files(
        tmp_path,
        {"synthesis/data/input.json": chinese, "synthesis/data_en/input_en.json": english},
    )

    examples = benchmark("palbench.restate", tmp_path, language=language).examples

    assert {example.category for example in examples} == set(categories)
    assert len({example.id for example in examples}) == len(examples)


def test_a_long_run_of_one_character_is_cut_into_words_at_once() -> None:
    """The library jieba, which finds the words of Chinese texts, would take twelve seconds."""
    words("火")  # jieba reads its dictionary
    started = time.process_time()

    assert "".join(words("火" * 60_000)) == "火" * 60_000

    assert time.process_time() - started < 3


def scored_row(**parts: float) -> Any:
    """Return a scored question as the metrics read it."""
    return SimpleNamespace(parts=parts, failure=None)


FAILED_ROW: Any = SimpleNamespace(parts={}, failure="any")


def test_the_s_score_is_a_mean_over_all_topics_in_which_failures_count_as_zero() -> None:
    """The S-score, in percent, says how well the selected solutions suit the user.

    A selection that is not valid counts as 0, and so does a question that failed.
    """
    rows = [
        scored_row(s_score=1.0, valid=1.0),
        scored_row(s_score=0.0, valid=0.0),
        FAILED_ROW,
        FAILED_ROW,
    ]

    figures = benchmark("palbench.select").scorer.aggregate(rows)

    assert figures == {"S-score": 100 * (1.0 + 0 + 0 + 0) / 4, "invalid selections": 1}


def test_a_judge_that_gives_impossible_points_is_asked_again(scripted: Any) -> None:
    """A judge gives 0 to 2 points for how well a need of the user was understood."""

    def give_impossible_points_first(kind: str, prompt: str, number: int) -> Any:
        return {"score": {"points": 7.5 if number == 1 else 1}}

    lm = scripted(give_impossible_points_first)
    judge = NeedsJudge(lm, adapter())
    topic = benchmark("palbench.restate").examples[0].asked.topic

    verdict = judge(topic, "a need")

    assert verdict.points == 1.0
    assert len(prompts_to(lm)) == 2


def test_an_empty_restatement_gets_no_points_without_a_call(model_that_replies: Any) -> None:
    """A restatement says what the user needs. Here it is blank."""
    lm = model_that_replies({"score": {"points": 1}})
    judge = NeedsJudge(lm, adapter())
    topic = benchmark("palbench.restate").examples[0].asked.topic

    verdict = judge(topic, " ")

    assert verdict.points == 0.0
    assert prompts_to(lm) == []


DRAWN_PLANS = [drawn_plan(f"topic {number}") for number in range(200)]
"""A plan says for each turn of a dialogue what user and assistant do; it is drawn at random."""


def test_in_a_drawn_plan_the_assistant_acts_as_the_paper_allows() -> None:
    """`ASSISTANT_ACTIONS_AFTER` lists what the assistant may do after each action of the user."""
    for plan in DRAWN_PLANS:
        for turn in plan:
            assert turn.assistant in ASSISTANT_ACTIONS_AFTER[turn.user]


def test_a_drawn_plan_has_two_guesses_at_what_the_user_needs_and_then_two_proposals() -> None:
    """A guess is called "requirement prediction". The user asks first, and gives feedback last."""
    for plan in DRAWN_PLANS:
        assistant_actions = [turn.assistant for turn in plan]
        assert assistant_actions[:2] == ["requirement prediction", "requirement prediction"]
        assert assistant_actions.count("requirement prediction") == 2
        assert assistant_actions.count("solution proposal") == 2
        assert plan[0].user == "topic inquiry"
        assert plan[-1].user == "solution feedback"


def test_another_seed_draws_other_plans() -> None:
    plans_of_seed_0 = [drawn_plan(f"topic {number}", seed=0) for number in range(20)]
    plans_of_seed_1 = [drawn_plan(f"topic {number}", seed=1) for number in range(20)]
    assert plans_of_seed_0 != plans_of_seed_1


RELEASED_PLAN = {
    "turn_1": {"user": "<话题询问>", "assistant": "<需求推测>"},
    "turn_2": {"user": "<需求确认>", "assistant": "<方案提议>"},
    "turn_10": {"user": "<方案反馈>", "assistant": "<反馈回应>"},
    "turn_3": {"user": "<方案讨论>", "assistant": "<方案讨论>"},
}
"""A plan in the form of the released file, with Chinese names of the actions.

The turns count in the order of their numbers, whatever the order of the file.
"""

PLANNED_TURNS = [
    ("topic inquiry", "requirement prediction"),
    ("requirement confirmation", "solution proposal"),
    ("solution discussion", "solution discussion"),
    ("solution feedback", "feedback response"),
]
"""`RELEASED_PLAN` as it is read: what the user does in each turn, and what the assistant does."""


@pytest.fixture
def palset_folder(tmp_path: Path) -> Path:
    """A folder with a copy of the bundled data."""
    with sample_folder() as samples:
        shutil.copytree(samples / "palset", tmp_path / "data")
    return tmp_path / "data"


def write_released_plan(folder: Path, topic: str) -> Path:
    """Write a file of released plans with one topic."""
    folder.mkdir()
    path = folder / PLANS_FILE
    path.write_text(json.dumps({topic: RELEASED_PLAN}))
    return path


def test_a_released_plan_is_read_in_the_order_of_its_turns(tmp_path: Path) -> None:
    """The file names actions in Chinese, and has turn 10 before turn 3."""
    path = write_released_plan(tmp_path / "plans", topic="topic-1")
    plan = read_plans(path)["topic-1"]
    assert [tuple(turn) for turn in plan] == PLANNED_TURNS


def test_a_file_of_plans_may_be_named(palset_folder: Path, tmp_path: Path) -> None:
    topic = benchmark("palbench.dialogue", palset_folder).examples[0].asked.id
    path = write_released_plan(tmp_path / "elsewhere", topic)

    loaded = benchmark("palbench.dialogue", palset_folder, plans=str(path))

    assert list(loaded.interaction.plans) == [topic]


class RecordingAssistant:
    """An assistant that answers "reply 1", "reply 2" and so on.

    `queries` holds what it was asked.
    """

    def __init__(self) -> None:
        self.queries: list[dict[str, Any]] = []

    def __call__(self, **query: Any) -> dspy.Prediction:
        self.queries.append(query)
        return dspy.Prediction(answer=f"reply {len(self.queries)}")

    @property
    def actions(self) -> list[str]:
        """The actions that the plan wanted from it."""
        return [query["action"] for query in self.queries]


def silent_rival(**query: Any) -> dspy.Prediction:
    return dspy.Prediction(answer="-")


def actions_in_dialogue(loaded: Any, example: dspy.Example) -> list[str]:
    """Hold a dialogue, with the offline model as user, and return what the assistant had to do."""
    lm = language_model(meter=Meter())
    interaction = loaded.interaction.with_simulated_user(lm, adapter(), silent_rival)
    assistant = RecordingAssistant()
    interaction.converse(assistant, example)
    return assistant.actions


def test_a_dialogue_follows_the_released_plan_of_its_topic(palset_folder: Path) -> None:
    topic = benchmark("palbench.dialogue", palset_folder).examples[0].asked.id
    write_released_plan(palset_folder / "dialogue_evaluation", topic)
    loaded = benchmark("palbench.dialogue", palset_folder)

    assert actions_in_dialogue(loaded, loaded.examples[0]) == [
        "requirement prediction",
        "solution proposal",
        "solution discussion",
        "feedback response",
    ]


def test_a_dialogue_without_a_released_plan_follows_a_drawn_one() -> None:
    loaded = benchmark("palbench.dialogue")
    example = loaded.examples[0]

    drawn_actions = [turn.assistant for turn in drawn_plan(example.asked.id)]
    assert actions_in_dialogue(loaded, example) == drawn_actions


@pytest.mark.parametrize(
    ("plans", "problem"),
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
def test_plans_of_another_form_are_refused(tmp_path: Path, plans: Any, problem: str) -> None:
    """A plan says what user and assistant do in each turn.

    The action "<方案提议>", to propose a solution, is never the user's.
    """
    path = tmp_path / PLANS_FILE
    path.write_text(json.dumps(plans))
    with pytest.raises(DataError, match=problem):
        read_plans(path)


PERSONA = Persona(profile="a baker", situation="moved", needs="NEEDS", preferences="PREFERENCES")


def hold_dialogue(
    lm: Any, assistant: Callable[..., dspy.Prediction], plan: list[tuple[Any, Any]]
) -> Conversation:
    """Let a model, which plays the user, talk with an assistant to the end of a plan.

    A plan has a pair for each turn: what the user does, and what the assistant does.
    """
    user = SimulatedUser(lm, adapter())
    turns = tuple(PlannedTurn(*pair) for pair in plan)
    return converse(user, assistant, PERSONA, turns, query="query?")


def test_a_dialogue_runs_to_the_end_of_its_plan(scripted: Any) -> None:
    lm = scripted(lambda kind, prompt, number: {"utterance": f"words {number}"})
    plan = [
        ("topic inquiry", "requirement prediction"),
        ("requirement confirmation", "solution proposal"),
    ]

    conversation = hold_dialogue(lm, RecordingAssistant(), plan)

    utterances = [(each.role, each.action, each.text) for each in conversation.utterances]
    assert utterances == [
        ("user", "topic inquiry", "words 1"),
        ("assistant", "requirement prediction", "reply 1"),
        ("user", "requirement confirmation", "words 2"),
        ("assistant", "solution proposal", "reply 2"),
    ]
    assert conversation.last_reply.answer == "reply 2"


def test_the_assistant_is_shown_the_dialogue_so_far_and_its_next_action(scripted: Any) -> None:
    lm = scripted(lambda kind, prompt, number: {"utterance": f"words {number}"})
    assistant = RecordingAssistant()
    plan = [
        ("topic inquiry", "requirement prediction"),
        ("requirement confirmation", "solution proposal"),
    ]

    hold_dialogue(lm, assistant, plan)

    assert assistant.queries == [
        {
            "question": "words 1",
            "dialogue": "",
            "action": "requirement prediction",
        },
        {
            "question": "words 2",
            "dialogue": "user: words 1\nassistant: reply 1",
            "action": "solution proposal",
        },
    ]


@pytest.mark.parametrize(
    ("user_action", "shown", "hidden"),
    [
        ("topic inquiry", "NEEDS", "PREFERENCES"),
        ("requirement confirmation", "NEEDS", "PREFERENCES"),
        ("solution discussion", "PREFERENCES", "NEEDS"),
        ("solution feedback", "PREFERENCES", "NEEDS"),
    ],
)
def test_the_user_knows_preferences_only_once_solutions_are_discussed(
    model_that_replies: Any, user_action: str, shown: str, hidden: str
) -> None:
    """A model plays the user. It is shown needs at first, and later preferences among solutions.

    The user has the needs "NEEDS" and the preferences "PREFERENCES" here.
    """
    lm = model_that_replies({"utterance": "words"})

    hold_dialogue(lm, RecordingAssistant(), plan=[(user_action, "solution proposal")])

    [prompt] = prompts_to(lm)
    assert shown in prompt
    assert hidden not in prompt


@pytest.mark.parametrize("user_action", USER_ACTIONS)
def test_the_user_is_told_what_each_action_means(model_that_replies: Any, user_action: str) -> None:
    """A model plays the user. `USER_ACTIONS` describes each action of a plan in words."""
    lm = model_that_replies({"utterance": "words"})

    hold_dialogue(lm, RecordingAssistant(), plan=[(user_action, "solution proposal")])

    [prompt] = prompts_to(lm)
    assert USER_ACTIONS[user_action] in prompt


def test_a_line_break_of_the_assistant_does_not_break_the_dialogue(
    model_that_replies: Any,
) -> None:
    """A prompt shows the dialogue with one line for each turn."""
    lm = model_that_replies({"utterance": "words"})

    def reply_in_two_lines(**query: Any) -> dspy.Prediction:
        return dspy.Prediction(answer="reply\nmore")

    plan = [("topic inquiry", "requirement prediction")]
    conversation = hold_dialogue(lm, reply_in_two_lines, plan)

    assert conversation.utterances[1].text == "reply more"


FIRST_DIALOGUE_IS_BETTER = {
    "analysis_1": "a",
    "analysis_2": "b",
    "comparison": "c",
    "scores": {"assistant_1": 8, "assistant_2": 3},
}
"""The reply of a model that is asked to compare two dialogues."""


@pytest.mark.parametrize(
    ("judge_class", "shown", "hidden"),
    [
        (NeedUnderstandingJudge, "NEEDS", "PREFERENCES"),
        (PreferenceUnderstandingJudge, "PREFERENCES", "NEEDS"),
    ],
)
def test_each_judge_of_dialogues_sees_its_own_part_of_the_persona(
    model_that_replies: Any, judge_class: Any, shown: str, hidden: str
) -> None:
    """One judge scores how well the user's needs were understood, the other one the preferences.

    The user has the needs "NEEDS" and the preferences "PREFERENCES" here.
    """
    lm = model_that_replies(FIRST_DIALOGUE_IS_BETTER)

    compare(judge_class(lm, adapter()), PERSONA, own="mine", other="theirs")

    for prompt in prompts_to(lm):
        assert shown in prompt
        assert hidden not in prompt


def test_a_judge_of_dialogues_is_asked_six_times_even_if_a_cache_knows_the_answer(
    scripted: Any,
) -> None:
    """Each order of the dialogues is judged three times, as in the released code.

    This judge gives 8 to the dialogue that it is shown first, and 3 to the other one.
    """
    lm = scripted(lambda *call: FIRST_DIALOGUE_IS_BETTER, cache=True)

    result = compare(NeedUnderstandingJudge(lm, adapter()), PERSONA, own="mine", other="theirs")

    assert len(prompts_to(lm)) == 6
    assert result.own == (8 + 3) / 2


def test_equal_dialogues_tie_without_a_call(model_that_replies: Any) -> None:
    lm = model_that_replies(FIRST_DIALOGUE_IS_BETTER)
    judge = NeedUnderstandingJudge(lm, adapter())

    assert compare(judge, PERSONA, own="same", other="same").outcome == "tie"

    assert prompts_to(lm) == []


def load_dialogue(rival: Callable[..., dspy.Prediction], **options: Any) -> Any:
    """Load the dialogues, with the offline model as user and as judge."""
    lm = language_model(meter=Meter())
    loaded = benchmark("palbench.dialogue", **options).with_simulated_user(lm, adapter(), rival)
    return loaded.with_judges(lambda judge_class: judge_class(lm, adapter()))


def test_by_default_nobody_sees_the_logs_of_the_current_session() -> None:
    """Logs say what the user just did. A query would have them in its field "recent"."""
    assistant = RecordingAssistant()
    rival = RecordingAssistant()
    loaded = load_dialogue(rival)

    loaded.answer(assistant, loaded.examples[0])

    assert assistant.queries
    assert rival.queries
    for query in [*assistant.queries, *rival.queries]:
        assert not query.get("recent")


def test_with_against_logs_the_rival_alone_sees_the_logs_of_the_current_session() -> None:
    """Logs say what the user just did. A query has them in its field "recent"."""
    assistant = RecordingAssistant()
    rival = RecordingAssistant()
    loaded = load_dialogue(rival, against_logs=True)

    loaded.answer(assistant, loaded.examples[0])

    assert assistant.queries
    for query in assistant.queries:
        assert not query.get("recent")
    assert rival.queries
    for query in rival.queries:
        assert len(query["recent"]) == 1


@pytest.mark.parametrize(("text", "value"), [("false", False), ("true", True)])
def test_an_option_that_is_a_text_is_read_as_true_or_false(text: Any, value: bool) -> None:
    """Options of the command line are texts."""
    assert PalDialogue.load(against_logs=text).interaction.against_logs is value


WIN, TIE, DEFEAT = 1.0, 0.5, 0.0


def test_wins_ties_and_defeats_are_counted() -> None:
    """Two dialogues are compared by how well needs (requirement) and preferences were understood.

    A failed question is left out.
    """
    rows = [
        scored_row(requirement=WIN, preference=DEFEAT),
        scored_row(requirement=WIN, preference=TIE),
        scored_row(requirement=DEFEAT, preference=TIE),
        FAILED_ROW,
    ]

    figures = load_dialogue(silent_rival).scorer.aggregate(rows)

    assert figures == {
        "requirement WIN": 2,
        "requirement TIE": 0,
        "requirement LOSE": 1,
        "preference WIN": 0,
        "preference TIE": 2,
        "preference LOSE": 1,
    }


def test_without_a_rival_no_dialogue_is_held() -> None:
    without_rival: Any = None
    loaded = load_dialogue(without_rival)
    with pytest.raises(UserError, match="play the user and a rival"):
        loaded.answer(silent_rival, loaded.examples[0])


def test_without_a_judge_no_dialogue_is_scored() -> None:
    loaded = benchmark("palbench.dialogue")
    with pytest.raises(UserError, match="--judge-lm"):
        loaded.score(loaded.examples[0], dspy.Prediction(answer="a"))


def test_a_dialogue_is_not_scored_without_the_dialogue_of_a_rival() -> None:
    """A score says which of two dialogues is better. `mempiler evaluate` holds both."""
    loaded = load_dialogue(silent_rival)
    with pytest.raises(UserError, match="mempiler evaluate"):
        loaded.score(loaded.examples[0], dspy.Prediction(answer="a"))


def test_the_hash_of_the_judges_is_known_before_there_is_a_model() -> None:
    """Scores can be compared only if their judges had the same prompts, that is, the same hash."""
    without_model = benchmark("palbench.dialogue")
    with_model = load_dialogue(silent_rival)
    assert with_model.scorer.judge_hash == without_model.scorer.judge_hash


@pytest.mark.parametrize("changed_class", [NeedUnderstandingJudge, PreferenceUnderstandingJudge])
def test_the_hash_of_the_judges_covers_both_prompts(changed_class: Any) -> None:
    """Dialogues have two judges, one for needs and one for preferences. One of them is changed."""
    lm = language_model(meter=Meter())

    class ChangedJudge(changed_class):
        """The judge with other instructions."""

        signature = changed_class.signature.with_instructions("Judge.")

    def make_judge(judge_class: Any) -> Any:
        return ChangedJudge(lm) if judge_class is changed_class else judge_class(lm)

    loaded = benchmark("palbench.dialogue")
    changed = loaded.with_judges(make_judge)

    assert changed.scorer.judge_hash != loaded.scorer.judge_hash
