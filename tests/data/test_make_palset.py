"""A PAL-Set is written step by step: what its files hold, what is left out, reviews, and prompts.

A PAL-Set is made-up data in the form of the benchmark PAL-Bench. It follows users for some months:
their devices log what they do, and they ask an assistant for advice in dialogues. A language model
writes it; here `flawless_model` plays that model, and a test puts mistakes into its answers.

A situation is a part of a month in the life of a user, named by its last day. Some situations end
with a dialogue. The dialogues of the last month are the query set, which the benchmark asks about;
the earlier ones are the history.

Each answer of the model is checked. The report lists every refused answer as a rejection, with what
became of it: "retried" (asked for again), "given up" (no attempt is left), "left out" of the files,
or "kept" in them. A review lets the model look for faults in what it wrote, and write these parts
anew; in code this is called mending.

The wrong answers of each step stand in `test_make_palset_checks.py`.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler.data.palbench.reader import read_palset
from mempiler.data.synthesis.memoryquest.make import make_memoryquest
from mempiler.data.synthesis.memoryquest.profiles import read_profiles
from mempiler.data.synthesis.runner import Runner, Step
from mempiler.programs.adapter import adapter

from tests.conftest import suite

from ..programs import test_prompts as prompts
from ..scripted_engine import Reply
from . import scripted_memoryquest
from .conftest import MadePalset, synthesize_palset
from .scripted_palset import flawless_model, prompt_field


@pytest.fixture(scope="module")
def flawless_palset(tmp_path_factory: pytest.TempPathFactory) -> MadePalset:
    """A PAL-Set of one user, "0000", in November and December, written without a mistake."""
    return synthesize_palset(tmp_path_factory.mktemp("flawless"), flawless_model)


class PalsetOfTwoUsers(NamedTuple):
    """A PAL-Set, and the file of it that the benchmark loads."""

    made: MadePalset
    input_file: Path


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("en", "input_en.json"), id="English"),
        pytest.param(("zh", "input.json"), id="Chinese"),
    ],
)
def palset_of_two_users(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PalsetOfTwoUsers:
    """A PAL-Set of two users, written without a mistake, in English and in Chinese."""
    language, file_name = request.param
    folder = tmp_path_factory.mktemp(f"two-users-{language}")
    made = synthesize_palset(folder, flawless_model, users=2, language=language)
    return PalsetOfTwoUsers(made, folder / file_name)


def test_the_benchmark_finds_no_problem_in_the_files_of_two_users(
    palset_of_two_users: PalsetOfTwoUsers,
) -> None:
    """A model without mistakes wrote the files. The reader of PAL-Bench reports every problem."""
    problems: list[Any] = []

    histories, questions = read_palset([palset_of_two_users.input_file], problems.append)

    assert palset_of_two_users.made.report.rejections == []
    assert problems == []
    assert [history.id for history in histories] == ["0000", "0001"]
    assert questions


def test_the_benchmark_reads_the_side_files(palset_of_two_users: PalsetOfTwoUsers) -> None:
    """Beside the file of dialogues, others hold needs, situations and preferences of the users."""
    _, questions = read_palset([palset_of_two_users.input_file], lambda finding: None)

    # These are words of the scripted model.
    persona = questions[0].persona
    needs = json.loads(persona.needs)
    assert needs["implicit_needs"][0]["evidences"] == ["a detail"]
    assert "The user lived through part" in persona.situation
    assert "Suits the user." in persona.preferences


def test_texts_in_another_language_are_refused(made_palset: Any) -> None:
    """A Chinese PAL-Set is asked for, but the model answers in English, at both of its attempts."""

    def answer_in_english(kind: str, prompt: str, number: int) -> Any:
        # The scripted model answers in the language that the prompt names.
        return flawless_model(kind, prompt.replace("Chinese", "English"), number)

    palset = made_palset(answer_in_english, language="zh", attempts=2)

    assert palset.calls["people"] == 2
    assert palset.report.accepted == {}
    first_problem = palset.report.rejections[0].problems[0]
    assert "people[1].occupation is not in Chinese: The user occupation 0" in first_problem


def test_the_file_of_backgrounds_has_the_released_form(flawless_palset: MadePalset) -> None:
    """The authors of PAL-Bench released files with these fields in this order."""
    background = flawless_palset.files["background_en.json"]["0000"]

    assert list(background) == [
        "name",
        "gender",
        "age",
        "occupation",
        "health status",
        "family members",
        "hobbies",
        "personality",
    ]
    assert background["personality"]["Openness"] == "low"


def test_the_file_of_preferences_has_the_released_form(flawless_palset: MadePalset) -> None:
    """A user has preferences about types of requirements, which are numbered in four areas of life.

    The scripted model calls the first one "work advice 0 at 30" for a user who is 30 years old.
    """
    preferences = flawless_palset.files["preference_en.json"]["0000"]

    assert list(preferences) == ["work", "health", "family", "leisure"]
    assert preferences["work"]["work-1"]["requirement"] == "work advice 0 at 30"


def days_of_dialogues(files: dict[str, Any]) -> list[str]:
    """Return the days of the only user's dialogues."""
    user = files["input_en.json"]["0000"]
    dialogues = [*user["history"], *user["query"]]
    return [dialogue["dialogue_timestamp"][:10] for dialogue in dialogues]


def test_needs_are_keyed_by_the_days_of_the_dialogues(flawless_palset: MadePalset) -> None:
    files = flawless_palset.files
    needs = files["requirement_framework_en.json"]["0000"]
    assert list(needs) == days_of_dialogues(files)


@pytest.mark.parametrize("file", ["situation_en.json", "log_en.json", "experience_en.json"])
def test_situations_logs_and_experiences_are_keyed_by_the_last_days_of_situations(
    flawless_palset: MadePalset, file: str
) -> None:
    """The model divides both months into four situations. A dialogue ends some of them."""
    entries = flawless_palset.files[file]["0000"]

    assert sorted(entries) == [
        "2024-11-07",
        "2024-11-14",
        "2024-11-21",
        "2024-11-30",
        "2024-12-07",
        "2024-12-14",
        "2024-12-21",
        "2024-12-31",
    ]
    assert set(days_of_dialogues(flawless_palset.files)) < set(entries)


def test_a_topic_has_eight_candidates_and_two_disliked_solutions(
    flawless_palset: MadePalset,
) -> None:
    """A topic is a question that the user asks in a dialogue. Candidates are possible solutions.

    "neg_list" holds the candidates that the user dislikes.
    """
    files = flawless_palset.files
    last_dialogue = files["input_en.json"]["0000"]["query"][-1]
    day = last_dialogue["dialogue_timestamp"][:10]

    assert len(last_dialogue["topics"]["topic-1"]["candidate_solutions"]) == 8
    preferences = files["solution_preference_en.json"]["0000"][day]["topic-1"]
    assert len(preferences["neg_list"]) == 2


@pytest.fixture(scope="module")
def prompts_by_output(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The prompts of the synthesis of four months, by the output field that they ask for."""
    prompts_of_synthesis: dict[str, list[str]] = defaultdict(list)

    def reply(kind: str, prompt: str, number: int) -> Any:
        prompts_of_synthesis[kind].append(prompt)
        return flawless_model(kind, prompt, number)

    synthesize_palset(tmp_path_factory.mktemp("four-months"), reply, months=4)
    return prompts_of_synthesis


def test_prompts_for_candidates_say_nothing_about_the_user(
    prompts_by_output: dict[str, list[str]],
) -> None:
    """Candidates are possible solutions; only later the user's preferences decide among them.

    A prompt that described the user would have the name "Ann", the field "profile", and sentences
    of preferences that begin with "Likes".
    """
    candidate_prompts = prompts_by_output["candidates"]

    assert candidate_prompts
    for prompt in candidate_prompts:
        assert "Ann" not in prompt
        assert "Likes" not in prompt
        assert "profile" not in prompt


def test_only_liked_solutions_are_proposed_in_a_query_dialogue(
    prompts_by_output: dict[str, list[str]],
) -> None:
    """A query dialogue is one that the benchmark asks about; the others are the history.

    A solution that the user dislikes has the feedback "neg".
    """
    dialogue_prompts = prompts_by_output["turns"]
    # In a query dialogue the assistant knows the user, in a dialogue of the history it does not.
    query_prompts = [prompt for prompt in dialogue_prompts if "knows background" in prompt]
    history_prompts = [prompt for prompt in dialogue_prompts if "knows neither" in prompt]

    assert len(query_prompts) + len(history_prompts) == len(dialogue_prompts)
    assert query_prompts
    for prompt in query_prompts:
        assert '"feedback": "neg"' not in prompt
    assert any('"feedback": "neg"' in prompt for prompt in history_prompts)


def test_no_attempt_repeats_a_prompt_so_no_cache_can_answer_it(made_palset: Any) -> None:
    """A refused answer is asked for again. To the same prompt a cache would give the same answer.

    The model invents no user, five times. Its prompts differ in the number of the attempt.
    """
    prompts_of_model: list[str] = []

    def invent_nobody(kind: str, prompt: str, number: int) -> Any:
        prompts_of_model.append(prompt)
        return {"people": []}

    palset = made_palset(invent_nobody, attempts=5, threads=1)

    assert len(prompts_of_model) == 5
    assert len(set(prompts_of_model)) == 5
    assert "- 0 users; invent 1" in prompts_of_model[3]
    assert "- this is attempt 4" in prompts_of_model[3]
    assert palset.files == {}


def test_the_model_is_told_that_its_answer_could_not_be_read(made_palset: Any) -> None:
    """An attempt whose answer cannot be read takes two calls: another form is asked for at once."""
    prompts_of_model: list[str] = []

    def reply(kind: str, prompt: str, number: int) -> Any:
        prompts_of_model.append(prompt)
        is_first_attempt = len(prompts_of_model) <= 2
        return "no fields at all" if is_first_attempt else flawless_model(kind, prompt, number)

    made_palset(reply, threads=1)

    prompt_of_second_attempt = prompts_of_model[2]
    assert "no answer that can be read" in prompt_of_second_attempt


@pytest.mark.parametrize(
    ("missing_part", "words_of_prompt"),
    [
        pytest.param("preferences", "Ann 0", id="no preferences"),
        pytest.param("situations", "Ann 0", id="no situations"),
        # Only the prompt for a query dialogue says that the assistant knows the user's background.
        pytest.param("turns", "knows background", id="no query dialogue"),
    ],
)
def test_a_user_who_lacks_a_necessary_part_is_left_out(
    made_palset: Any, missing_part: str, words_of_prompt: str
) -> None:
    """Of the users Ann 0 and Ann 1, the model writes one part not at all for Ann 0."""

    def leave_part_out(kind: str, prompt: str, number: int) -> Any:
        if kind == missing_part and "Ann 0" in prompt and words_of_prompt in prompt:
            return {kind: []}
        return flawless_model(kind, prompt, number)

    palset = made_palset(leave_part_out, users=2)

    assert list(palset.files["input_en.json"]) == ["0001"]
    users_left_out = [
        rejection.id for rejection in palset.report.rejections if rejection.step == "user"
    ]
    assert users_left_out == ["0000"]


def never_write_about_first_week(missing_part: str) -> Reply:
    """Return a model that writes one part of the first week of November not at all."""

    def reply(kind: str, prompt: str, number: int) -> Any:
        # The prompt of an experience holds earlier situations as well.
        text = prompt_field(prompt, "situation") if kind == "experience" else prompt
        if kind == missing_part and "part 0 of 2024-11" in text:
            return {kind: "" if kind == "experience" else []}
        return flawless_model(kind, prompt, number)

    return reply


def history_of(palset: MadePalset) -> list[dict[str, Any]]:
    """Return the only user's dialogues before the last month, each with the logs before it."""
    return palset.files["input_en.json"]["0000"]["history"]


@pytest.mark.parametrize(
    ("missing_part", "step"),
    [
        pytest.param("turns", "dialogue", id="the words of a dialogue"),
        pytest.param("topics", "requirements", id="the topics of a dialogue"),
    ],
)
def test_the_logs_of_a_week_without_a_dialogue_stand_before_the_next_dialogue(
    made_palset: Any, flawless_palset: MadePalset, missing_part: str, step: str
) -> None:
    """The first dialogue is about the first week. Here the model writes no such dialogue."""
    first_dialogue, second_dialogue, *_ = history_of(flawless_palset)

    palset = made_palset(never_write_about_first_week(missing_part), threads=1)

    dialogue = history_of(palset)[0]
    assert dialogue["dialogue_timestamp"] == second_dialogue["dialogue_timestamp"]
    assert dialogue["logs"] == first_dialogue["logs"] + second_dialogue["logs"]
    assert palset.report.count(step, "given up") == 1


@pytest.mark.parametrize("missing_part", ["logs", "experience"])
def test_a_week_without_logs_has_no_dialogue(
    made_palset: Any, flawless_palset: MadePalset, missing_part: str
) -> None:
    """Logs are made from an experience, which is a text about what the user did in that week."""
    _, second_dialogue, *_ = history_of(flawless_palset)

    palset = made_palset(never_write_about_first_week(missing_part), threads=1)

    dialogue = history_of(palset)[0]
    assert dialogue["dialogue_timestamp"] == second_dialogue["dialogue_timestamp"]
    assert dialogue["logs"] == second_dialogue["logs"]
    assert palset.report.count(missing_part, "given up") == 1


def change_logs_of_first_week(change: Callable[[list[Any]], None]) -> Reply:
    """Return a model that makes the same mistake in each of its answers with these logs."""

    def reply(kind: str, prompt: str, number: int) -> Any:
        answer = flawless_model(kind, prompt, number)
        if kind == "logs" and "2024-11-01" in prompt_field(prompt, "begin"):
            change(answer["logs"])
        return answer

    return reply


def contents_of_first_week(palset: MadePalset) -> list[str]:
    """Return what the logs of the first week say."""
    entries = palset.files["log_en.json"]["0000"]["2024-11-07"]
    return [entry["content"] for entry in entries]


def test_a_log_outside_of_its_week_is_left_out_of_the_last_attempt(
    made_palset: Any, flawless_palset: MadePalset
) -> None:
    """The model is asked twice. The entries with right times are taken from its second answer."""

    def move_entry_to_another_year(entries: list[Any]) -> None:
        entries[3]["timestamp"] = "2023-01-01 10:00"

    palset = made_palset(change_logs_of_first_week(move_entry_to_another_year), attempts=2)

    right_contents = contents_of_first_week(flawless_palset)
    assert contents_of_first_week(palset) == right_contents[:3] + right_contents[4:]
    assert [rejection.outcome for rejection in palset.report.rejections] == ["retried", "left out"]


def test_of_two_logs_in_one_minute_the_last_attempt_keeps_the_first(
    made_palset: Any, flawless_palset: MadePalset
) -> None:
    def repeat_time(entries: list[Any]) -> None:
        entries[8]["timestamp"] = entries[7]["timestamp"]

    palset = made_palset(change_logs_of_first_week(repeat_time), attempts=2)

    right_contents = contents_of_first_week(flawless_palset)
    assert contents_of_first_week(palset) == right_contents[:8] + right_contents[9:]


def test_logs_in_another_order_are_sorted_in_the_last_attempt(
    made_palset: Any, flawless_palset: MadePalset
) -> None:
    palset = made_palset(change_logs_of_first_week(list.reverse), attempts=2)
    assert contents_of_first_week(palset) == contents_of_first_week(flawless_palset)


def test_the_seed_decides_hours_and_plans(made_palset: Any, flawless_palset: MadePalset) -> None:
    """A plan says what user and assistant do in each turn of a dialogue.

    Hours and plans of the dialogues are drawn. The events of the timeline are the model's.
    """
    files_of_seed_0 = flawless_palset.files
    files_of_seed_1 = made_palset(flawless_model, seed=1).files

    assert files_of_seed_1["timeline_en.json"] == files_of_seed_0["timeline_en.json"]
    assert files_of_seed_1["input_en.json"] != files_of_seed_0["input_en.json"]


def test_the_number_of_threads_changes_nothing(
    made_palset: Any, flawless_palset: MadePalset
) -> None:
    """The fixture `flawless_palset` is made with two threads, by the same model."""
    with_five_threads = made_palset(flawless_model, threads=5)
    assert with_five_threads.files == flawless_palset.files


# Texts that `flawless_model` writes for the first week, and that `reviewing_model` finds faulty.
FAULTY_LOG_5 = "The user searched for thing 4 of 11-01 and viewed it."
FAULTY_LOG_6 = "The user searched for thing 5 of 11-01 and viewed it."
FAULTY_TURN_1 = "I speak of T1_Q"
FAULTY_TURN_2 = "I speak of T1_N1"

CORRECTED_LOG = "The user bought a lamp."
CORRECTED_TURNS = {1: "What now?", 2: "Yes."}


def reviewing_model(corrects_faults: bool) -> Reply:
    """Return a model that finds two faults in the logs and two in the dialogue of the first week.

    The faults are in the log entries 5 and 6, and in what the user says in the turns 1 and 2.

    Args:
        corrects_faults: Whether the model's new texts are right. Otherwise they hold the faults
            again.
    """

    def reply(kind: str, prompt: str, number: int) -> Any:
        if kind == "faults":
            return {"faults": find_wrong_labels(prompt)}
        if kind == "contradictions":
            return {"contradictions": find_contradictions(prompt)}
        if kind == "corrected" and "[[ ## entries ## ]]" in prompt:
            return {"corrected": rewrite_logs(prompt, corrects_faults)}
        if kind == "corrected":
            return {"corrected": rewrite_dialogue(prompt, corrects_faults)}
        return flawless_model(kind, prompt, number)

    return reply


def find_wrong_labels(prompt: str) -> list[dict[str, Any]]:
    """Review the types of logs or the actions of a dialogue, and find those of two texts wrong."""
    if "[[ ## logs ## ]]" in prompt and FAULTY_LOG_5 in prompt:
        return [{"number": 5, "reason": "bought, not searched"}]
    if f"turn 2 | user | requirement confirmation | {FAULTY_TURN_2}" in prompt:
        return [{"turn": 2, "role": "User", "reason": "asks for something else"}]
    return []


def find_contradictions(prompt: str) -> list[dict[str, Any]]:
    """Review logs or a dialogue against the persona, and find two texts that contradict it."""
    if "L6: 2024-11-01" in prompt and FAULTY_LOG_6 in prompt:
        return [{"record": "[l6]", "reason": "has no car"}]
    if f"U1: {FAULTY_TURN_1}" in prompt:
        return [{"record": "U1", "reason": "hates that"}]
    return []


def rewrite_logs(prompt: str, corrects_faults: bool) -> list[dict[str, Any]]:
    """Write the faulty log entries anew. The prompt lists them as `number | ...`."""
    new_content = CORRECTED_LOG if corrects_faults else f"{FAULTY_LOG_5} {FAULTY_LOG_6}"

    new_entries: list[dict[str, Any]] = []
    for line in prompt_field(prompt, "entries"):
        number, *_ = line.split(" | ")
        entry = {"number": int(number), "type": "Transaction_record", "content": new_content}
        new_entries.append(entry)
    return new_entries


def rewrite_dialogue(prompt: str, corrects_faults: bool) -> list[dict[str, Any]]:
    """Write the faulty turns anew. The prompt lists them as `turn number | role | ...`."""
    faulty_turns = {1: FAULTY_TURN_1, 2: FAULTY_TURN_2}
    new_contents = CORRECTED_TURNS if corrects_faults else faulty_turns

    new_turns: list[dict[str, Any]] = []
    for line in prompt_field(prompt, "faulty"):
        turn, role, *_ = line.split(" | ")
        number = int(turn.removeprefix("turn "))
        new_turns.append({"turn": number, "role": role, "content": new_contents[number]})
    return new_turns


@pytest.fixture(scope="module")
def palset_with_corrected_faults(tmp_path_factory: pytest.TempPathFactory) -> MadePalset:
    """A PAL-Set that was reviewed once. The new texts of `reviewing_model` are right."""
    folder = tmp_path_factory.mktemp("corrected")
    return synthesize_palset(folder, reviewing_model(corrects_faults=True), reviews=1)


@pytest.fixture(scope="module")
def palset_with_lasting_faults(tmp_path_factory: pytest.TempPathFactory) -> MadePalset:
    """A PAL-Set that was reviewed once. The new texts of `reviewing_model` have the same faults."""
    folder = tmp_path_factory.mktemp("lasting")
    return synthesize_palset(folder, reviewing_model(corrects_faults=False), reviews=1)


def test_faulty_logs_are_corrected(
    palset_with_corrected_faults: MadePalset, flawless_palset: MadePalset
) -> None:
    """A model reviews its own texts. It finds the log entries 5 and 6 wrong, and writes them anew.

    The time of an entry stays.
    """
    entries = palset_with_corrected_faults.files["log_en.json"]["0000"]["2024-11-07"]
    earlier_entries = flawless_palset.files["log_en.json"]["0000"]["2024-11-07"]

    corrected_entries = [entry for entry in entries if entry["content"] == CORRECTED_LOG]
    assert corrected_entries == [entries[4], entries[5]]
    for entry, earlier_entry in zip(entries[4:6], earlier_entries[4:6], strict=True):
        assert entry["type"] == "transaction record"
        assert entry["timestamp"] == earlier_entry["timestamp"]
    assert palset_with_corrected_faults.report.rejections == []


def test_faulty_dialogues_are_corrected(palset_with_corrected_faults: MadePalset) -> None:
    """A model reviews its own dialogue, and writes the user's words in two turns anew."""
    turns = history_of(palset_with_corrected_faults)[0]["dialogue"]

    assert turns["turn_1"]["user"] == {"action": "topic inquiry", "content": "What now?"}
    assert turns["turn_2"]["user"] == {"action": "requirement confirmation", "content": "Yes."}
    assert palset_with_corrected_faults.report.rejections == []


def test_what_was_corrected_is_reviewed_again(palset_with_corrected_faults: MadePalset) -> None:
    """The model corrects the logs of one of the eight situations, and every dialogue."""
    palset = palset_with_corrected_faults
    dialogues = len(days_of_dialogues(palset.files))
    corrections = 1 + dialogues

    assert palset.calls["corrected"] == corrections
    # Each text is reviewed once, and once more if it was corrected.
    assert palset.calls["faults"] == 8 + dialogues + corrections


def test_logs_that_are_still_faulty_after_a_correction_are_left_out(
    palset_with_lasting_faults: MadePalset,
) -> None:
    """The model writes two of the 20 entries of the first week anew, but with the same faults."""
    entries = palset_with_lasting_faults.files["log_en.json"]["0000"]["2024-11-07"]
    assert len(entries) == 20 - 2
    assert palset_with_lasting_faults.report.count("log review", "left out") == 1


def test_dialogues_that_are_still_faulty_after_a_correction_are_kept_and_reported(
    palset_with_lasting_faults: MadePalset,
) -> None:
    """A dialogue needs all of its turns. The model repeated the faults in two of them."""
    report = palset_with_lasting_faults.report
    reviews_of_dialogues = [
        rejection for rejection in report.rejections if rejection.step == "dialogue review"
    ]

    assert len(reviews_of_dialogues) == len(days_of_dialogues(palset_with_lasting_faults.files))
    for review in reviews_of_dialogues:
        assert review.outcome == "kept"
    assert reviews_of_dialogues[0].problems == (
        "turn 1, user: hates that",
        "turn 2, user: asks for something else",
    )


def test_faulty_logs_are_kept_if_too_few_logs_would_be_left(made_palset: Any) -> None:
    """Six of the 20 entries are faulty. Without them there would be fewer than the 15 needed."""
    faults = [{"record": f"L{number}", "reason": "cannot be"} for number in range(1, 7)]

    def find_faults_and_correct_none(kind: str, prompt: str, number: int) -> Any:
        if kind == "contradictions" and "L1: " in prompt:
            return {"contradictions": faults}
        if kind == "corrected":
            return {"corrected": []}
        return flawless_model(kind, prompt, number)

    palset = made_palset(find_faults_and_correct_none, reviews=1)

    for entries in palset.files["log_en.json"]["0000"].values():
        assert len(entries) == 20
    outcomes = {
        rejection.outcome
        for rejection in palset.report.rejections
        if rejection.step == "log review"
    }
    assert outcomes == {"kept"}


def assert_prompts_are_the_reviewed_ones(
    suite_part: str, messages: list[list[dict[str, Any]]]
) -> None:
    """Compare one prompt of every signature in a part of the suite with its file.

    Of several prompts of a signature the first one in the order of the alphabet is compared.
    """
    text_by_signature: dict[str, str] = {}
    for signature in suite():
        if f".{suite_part}" not in signature.__module__:
            continue
        name = signature.__name__
        system_message = adapter().format_system_message(Step(name, signature).prompt)
        texts = [
            prompts.prompt_as_text(prompt)
            for prompt in messages
            if prompt[0]["content"] == system_message
        ]
        assert texts, f"no prompt is of {name}: the scripted answers must lead to it"
        text_by_signature[name] = min(texts)
    prompts.assert_reviewed(text_by_signature, suite_part)


def test_the_prompts_of_memoryquest_are_the_reviewed_ones(
    scripted: Any, profiles: Path, tmp_path: Path
) -> None:
    """Every prompt stands in a file of tests/prompts, so that a change of it is read by someone."""
    lm = scripted(scripted_memoryquest.flawless_model)

    with prompts.listening(lm) as recorder:
        make_memoryquest(
            read_profiles(profiles)[:1],
            tmp_path / "quest",
            Runner(threads=1),
            scripted_memoryquest.RequestEmbedder(),
            lambda line: None,
        )

    assert_prompts_are_the_reviewed_ones("synthesis_memoryquest", recorder.prompts)


def test_the_prompts_of_a_palset_are_the_reviewed_ones(made_palset: Any) -> None:
    """Every prompt stands in a file of tests/prompts, so that a change of it is read by someone.

    The model finds faults here, because otherwise no prompt would ask for a correction.
    """
    recorder = prompts.PromptListener()

    with dspy.context(callbacks=[recorder], adapter=adapter()):
        made_palset(reviewing_model(corrects_faults=True), reviews=1, threads=1)

    assert_prompts_are_the_reviewed_ones("synthesis_palset", recorder.prompts)
