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


def test_the_benchmark_reads_the_files_of_two_users_and_finds_no_problem(
    palset_of_two_users: PalsetOfTwoUsers,
) -> None:
    """The reader of PAL-Bench calls `findings.append` for every problem in a file."""
    users = palset_of_two_users.made.files[palset_of_two_users.input_file.name]
    assert palset_of_two_users.made.report.rejections == []
    assert list(users) == ["0000", "0001"]

    findings: list[Any] = []
    histories, questions = read_palset([palset_of_two_users.input_file], findings.append)

    assert findings == []
    assert [history.id for history in histories] == ["0000", "0001"]
    # There is a question for each topic of a dialogue that is asked about.
    topic_count = 0
    for user in users.values():
        topic_count += sum(len(sample["topics"]) for sample in user["query"])
    assert topic_count > 0
    assert len(questions) == topic_count


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


def test_side_files_are_keyed_by_the_days_of_situations_and_dialogues(
    flawless_palset: MadePalset,
) -> None:
    """Each entry of a side file stands under the last day of its situation.

    The requirement framework has an entry for each dialogue, the other files for each situation.
    """
    files = flawless_palset.files
    user = files["input_en.json"]["0000"]
    dialogues = [*user["history"], *user["query"]]
    days = [dialogue["dialogue_timestamp"][:10] for dialogue in dialogues]

    # Not every situation has a dialogue.
    assert set(files["situation_en.json"]["0000"]) > set(days)
    assert list(files["requirement_framework_en.json"]["0000"]) == days
    # The scripted model divides each of the two months into four situations.
    assert len(files["log_en.json"]["0000"]) == 8
    assert len(files["experience_en.json"]["0000"]) == 8


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
    """A refused answer is asked for again, but a cache would give the same answer again.

    So the next prompt holds what was wrong with the last answer, and the number of the attempt.
    """
    seen_prompts: list[str] = []

    def reply(kind: str, prompt: str, number: int) -> Any:
        seen_prompts.append(prompt)
        # Of an answer that cannot be read, another form is asked for at once: two calls.
        is_first_attempt = len(seen_prompts) <= 2
        return "no fields at all" if is_first_attempt else {kind: []}

    palset = made_palset(reply, attempts=5, threads=1)

    # Nothing is written. The first of the five attempts takes two calls.
    assert palset.files == {}
    assert len(seen_prompts) == 1 + 5
    later_prompts = seen_prompts[2:]
    assert len(later_prompts) == 4
    assert len(set(later_prompts)) == 4
    assert "no answer that can be read" in later_prompts[0]
    assert "- this is attempt 4" in later_prompts[2]
    people_problems = [
        rejection.problems[0]
        for rejection in palset.report.rejections
        if rejection.step == "people"
    ]
    assert people_problems[1:] == ["0 users; invent 1"] * 4


@pytest.mark.parametrize(
    ("missing_kind", "words_of_prompt"),
    [
        pytest.param("preferences", "Ann 0", id="no preferences"),
        pytest.param("situations", "Ann 0", id="no situations"),
        # These are words of the prompt for a query dialogue.
        pytest.param("turns", "knows background", id="no query dialogue"),
    ],
)
def test_a_user_who_lacks_a_necessary_part_is_left_out(
    made_palset: Any, missing_kind: str, words_of_prompt: str
) -> None:
    """Of the users Ann 0 and Ann 1, the model writes one part not at all for Ann 0."""

    def reply(kind: str, prompt: str, number: int) -> Any:
        if kind == missing_kind and "Ann 0" in prompt and words_of_prompt in prompt:
            return {kind: []}
        return flawless_model(kind, prompt, number)

    palset = made_palset(reply, users=2)

    assert list(palset.files["input_en.json"]) == ["0001"]
    users_left_out = [
        rejection.id for rejection in palset.report.rejections if rejection.step == "user"
    ]
    assert users_left_out == ["0000"]


@pytest.mark.parametrize(
    ("missing_kind", "step", "has_logs"),
    [
        ("turns", "dialogue", True),
        ("topics", "requirements", True),
        ("logs", "logs", False),
        ("experience", "experience", False),
    ],
)
def test_a_situation_that_is_given_up_has_no_dialogue_and_leaves_its_logs_to_the_next(
    made_palset: Any, flawless_palset: MadePalset, missing_kind: str, step: str, has_logs: bool
) -> None:
    """The model never gives a valid answer about the first week, in one step of the synthesis.

    The `flawless_palset` has a dialogue of that week. If its logs were written before the step that
    fails (`has_logs`), they stand before the next dialogue.
    """
    complete_history = flawless_palset.files["input_en.json"]["0000"]["history"]
    first, second = complete_history[:2]
    assert first["dialogue_timestamp"].startswith("2024-11-07")

    def is_about_first_week(kind: str, prompt: str) -> bool:
        # The prompt of an experience holds earlier situations as well.
        text = prompt_field(prompt, "situation") if kind == "experience" else prompt
        return "part 0 of 2024-11" in text

    def reply(kind: str, prompt: str, number: int) -> Any:
        if kind == missing_kind and is_about_first_week(kind, prompt):
            return {kind: "" if kind == "experience" else []}
        return flawless_model(kind, prompt, number)

    palset = made_palset(reply, threads=1)

    history = palset.files["input_en.json"]["0000"]["history"]
    timestamps = [dialogue["dialogue_timestamp"] for dialogue in history]
    assert timestamps == [dialogue["dialogue_timestamp"] for dialogue in complete_history[1:]]
    if has_logs:
        assert history[0]["logs"] == first["logs"] + second["logs"]
    else:
        assert history[0]["logs"] == second["logs"]
    assert palset.report.count(step, "given up") == 1


def test_logs_out_of_time_are_left_out_of_the_last_attempt(made_palset: Any) -> None:
    """In both attempts the logs of the first week have wrong times, and are in reverse order.

    The first answer is refused. The second one is the last, so its right entries are used.
    """

    def reply(kind: str, prompt: str, number: int) -> Any:
        answer = flawless_model(kind, prompt, number)
        if kind == "logs" and "2024-11-01" in prompt_field(prompt, "begin"):
            entries = answer["logs"]
            entries[3]["timestamp"] = "2023-01-01 10:00"
            entries[8]["timestamp"] = entries[7]["timestamp"]
            entries.reverse()
        return answer

    palset = made_palset(reply)

    entries = palset.files["log_en.json"]["0000"]["2024-11-07"]
    # The entry 3 is outside of the week. Of the entries 7 and 8, which share a minute, the one
    # that comes first in the answer stays.
    # Their contents are "The user searched for thing 0 ...", "The user searched for thing 1 ...".
    numbers = [int(entry["content"].split()[5]) for entry in entries]
    assert numbers == [0, 1, 2, 4, 5, 6, *range(8, 20)]
    times = [entry["timestamp"] for entry in entries]
    assert times == sorted(times)
    assert [rejection.outcome for rejection in palset.report.rejections] == ["retried", "left out"]


def test_the_seed_decides_hours_and_plans(made_palset: Any, flawless_palset: MadePalset) -> None:
    """A plan says what user and assistant do in each turn of a dialogue."""
    files_of_seed_0 = flawless_palset.files
    files_of_seed_1 = made_palset(flawless_model, seed=1).files

    # The model writes the timeline; hours and plans of the dialogues are drawn.
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


def reviewing_model(corrects_faults: bool) -> Callable[[str, str, int], Any]:
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


def test_faulty_logs_are_corrected(palset_with_corrected_faults: MadePalset) -> None:
    """A model reviews its own texts, and writes the faulty ones anew."""
    palset = palset_with_corrected_faults
    assert palset.report.rejections == []
    # The reviews found faults in the entries 5 and 6 of the first week.
    entries = palset.files["log_en.json"]["0000"]["2024-11-07"]
    corrected_numbers = [
        number for number, entry in enumerate(entries, start=1) if entry["content"] == CORRECTED_LOG
    ]
    assert corrected_numbers == [5, 6]
    assert entries[4]["type"] == "transaction record"
    assert entries[5]["type"] == "transaction record"
    # The time stays. There is an entry every seven minutes, from the full hour on.
    assert entries[4]["timestamp"].endswith(":28")


def test_faulty_dialogues_are_corrected(palset_with_corrected_faults: MadePalset) -> None:
    """A model reviews its own texts, and writes the faulty ones anew."""
    palset = palset_with_corrected_faults
    assert palset.report.rejections == []
    # The reviews found faults in what the user says in the turns 1 and 2.
    turns = palset.files["input_en.json"]["0000"]["history"][0]["dialogue"]
    assert turns["turn_1"]["user"] == {"action": "topic inquiry", "content": "What now?"}
    assert turns["turn_2"]["user"] == {"action": "requirement confirmation", "content": "Yes."}


def test_what_was_corrected_is_reviewed_again(palset_with_corrected_faults: MadePalset) -> None:
    """The logs of one of eight situations are corrected, and every dialogue.

    So there is one review for each of the eight, one for the corrected logs, and two for each
    dialogue.
    """
    palset = palset_with_corrected_faults
    user = palset.files["input_en.json"]["0000"]
    dialogues = len(user["history"]) + len(user["query"])

    assert palset.calls["corrected"] == 1 + dialogues
    assert palset.calls["faults"] == (8 + 1) + 2 * dialogues


def test_logs_that_are_still_faulty_after_a_correction_are_left_out(
    palset_with_lasting_faults: MadePalset,
) -> None:
    """The model wrote the faulty entries anew, but with the same faults."""
    # Of the 20 entries of the first week two are faulty.
    entries = palset_with_lasting_faults.files["log_en.json"]["0000"]["2024-11-07"]
    assert len(entries) == 20 - 2
    assert palset_with_lasting_faults.report.count("log review", "left out") == 1


def test_dialogues_that_are_still_faulty_after_a_correction_are_kept_and_reported(
    palset_with_lasting_faults: MadePalset,
) -> None:
    """A dialogue needs all of its turns, so the faulty ones are kept."""
    palset = palset_with_lasting_faults
    dialogues = len(palset.files["requirement_framework_en.json"]["0000"])
    assert palset.report.count("dialogue review", "kept") == dialogues
    reviews_of_dialogues = [
        rejection for rejection in palset.report.rejections if rejection.step == "dialogue review"
    ]
    assert reviews_of_dialogues[0].problems == (
        "turn 1, user: hates that",
        "turn 2, user: asks for something else",
    )


def test_faulty_logs_are_kept_if_too_few_logs_would_be_left(made_palset: Any) -> None:
    """Six of the 20 entries are faulty. Without them there would be fewer than the 15 needed."""

    def reply(kind: str, prompt: str, number: int) -> Any:
        if kind == "contradictions" and "L1: " in prompt:
            six_faulty_entries = ["L1", "L2", "L3", "L4", "L5", "L6"]
            return {
                kind: [{"record": entry, "reason": "cannot be"} for entry in six_faulty_entries]
            }
        if kind == "corrected":
            return {kind: []}
        return flawless_model(kind, prompt, number)

    palset = made_palset(reply, reviews=1)

    for entries in palset.files["log_en.json"]["0000"].values():
        assert len(entries) == 20
    outcomes = {
        rejection.outcome
        for rejection in palset.report.rejections
        if rejection.step == "log review"
    }
    assert outcomes == {"kept"}
    # None of the logs of the eight situations could be corrected.
    assert palset.report.count("correction of logs", "given up") == 8


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
