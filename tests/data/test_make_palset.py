"""A PAL-Set is written step by step: checked, asked for again, looked over, mended; what its prompts say."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.palbench.reader import read_palset
from mempiler.data.synthesis.memoryquest.make import make_memoryquest
from mempiler.data.synthesis.memoryquest.profiles import read_profiles
from mempiler.data.synthesis.runner import Runner, Step
from mempiler.programs.adapter import adapter

from tests.conftest import suite

from ..programs import test_prompts as prompts
from . import test_make_memoryquest as quest
from . import test_make_palset as reviews
from .conftest import field, good


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_benchmark_reads_two_users_without_a_remark(made_palset, tmp_path, language):
    files, report, _ = made_palset(good, users=2, language=language)
    name = "input_en.json" if language == "en" else "input.json"
    assert report.rejections == []
    assert list(files[name]) == ["0000", "0001"]
    notes = []
    histories, asked = read_palset([tmp_path / "pal" / name], notes.append)
    assert notes == []
    assert [history.id for history in histories] == ["0000", "0001"]
    samples = [sample for user in files[name].values() for sample in user["query"]]
    assert len(asked) == sum(len(sample["topics"]) for sample in samples) > 0
    assert json.loads(asked[0].persona.needs)["implicit_needs"][0]["evidences"] == ["a detail"]
    assert "The user lived through part" in asked[0].persona.situation
    assert "Suits the user." in asked[0].persona.preferences


def test_texts_in_another_language_are_refused(made_palset):
    """A model that always answers in English."""

    def reply(kind, text, n):
        return good(kind, text.replace("Chinese", "English"), n)

    _, report, calls = made_palset(reply, language="zh", attempts=2)
    assert calls["people"] == 2
    assert report.accepted == {}
    assert (
        "people[1].occupation is not in Chinese: The user occupation 0"
        in report.rejections[0].problems[0]
    )


def test_side_files_have_the_released_form(made_palset):
    files, _, _ = made_palset(good)
    assert list(files["background_en.json"]["0000"]) == [
        "name", "gender", "age", "occupation", "health status", "family members", "hobbies", "personality",
    ]  # fmt: skip
    assert files["background_en.json"]["0000"]["personality"]["Openness"] == "low"
    assert list(files["preference_en.json"]["0000"]) == ["work", "health", "family", "leisure"]
    assert (
        files["preference_en.json"]["0000"]["work"]["work-1"]["requirement"]
        == "work advice 0 at 30"
    )
    dialogues = [one for part in files["input_en.json"]["0000"].values() for one in part]
    days = [one["dialogue_timestamp"][:10] for one in dialogues]
    assert set(files["situation_en.json"]["0000"]) > set(days)
    assert list(files["requirement_framework_en.json"]["0000"]) == days
    assert len(files["log_en.json"]["0000"]) == len(files["experience_en.json"]["0000"]) == 8
    assert len(dialogues[-1]["topics"]["topic-1"]["candidate_solutions"]) == 8
    assert len(files["solution_preference_en.json"]["0000"][days[-1]]["topic-1"]["neg_list"]) == 2


def test_no_prompt_holds_what_its_step_must_not_know(made_palset):
    """Candidates are written without a look at the user, in a query dialogue liked solutions alone are proposed."""
    seen = defaultdict(list)
    made_palset(lambda kind, text, n: seen[kind].append(text) or good(kind, text, n), months=4)
    assert seen["candidates"]
    assert not any(
        "Ann" in text or "Likes" in text or "profile" in text for text in seen["candidates"]
    )
    query, history = (
        [text for text in seen["turns"] if words in text]
        for words in ("knows background", "knows neither")
    )
    assert len(history) + len(query) == len(seen["turns"])
    assert query
    assert not any('"feedback": "neg"' in text for text in query)
    assert any('"feedback": "neg"' in text for text in history)


def test_no_attempt_repeats_a_question_and_an_answer_that_cannot_be_read_is_a_complaint(
    made_palset,
):
    """So that no cache can answer it."""
    seen = []

    def reply(kind, text, n):
        seen.append(text)
        return "no fields at all" if len(seen) < 3 else {kind: []}

    files, report, _ = made_palset(reply, attempts=5, threads=1)
    # The first answer is asked for twice, in another form.
    assert files == {}
    assert len(seen) == 6
    assert len(set(seen[2:])) == 4
    assert "no answer that can be read" in seen[2]
    assert "- this is attempt 4" in seen[4]
    told = [one.problems[0] for one in report.rejections if one.step == "people"]
    assert told[1:] == ["0 users; invent 1"] * 4


@pytest.mark.parametrize("lost", ["preferences", "situations", "turns"])
def test_a_user_without_a_whole_persona_or_a_query_dialogue_is_left_out_and_the_others_stay(
    made_palset, lost
):
    def reply(kind, text, n):
        gone = kind == lost and "Ann 0" in text and ("knows background" in text or kind != "turns")
        return {kind: []} if gone else good(kind, text, n)

    files, report, _ = made_palset(reply, users=2)
    assert list(files["input_en.json"]) == ["0001"]
    assert [one.id for one in report.rejections if one.step == "user"] == ["0000"]


LOST = {"turns": "dialogue", "topics": "requirements", "logs": "logs", "experience": "experience"}
"""By output: the step that is given up for November's first week, which gets a dialogue for this seed."""


def test_a_situation_that_is_given_up_has_no_dialogue_and_its_logs_go_to_the_next_one(made_palset):
    before = made_palset(good)[0]["input_en.json"]["0000"]["history"]
    assert before[0]["dialogue_timestamp"].startswith("2024-11-07")
    for lost, step in LOST.items():

        def reply(kind, text, n, lost=lost):
            gone = kind == lost and "part 0 of 2024-11" in (
                field(text, "situation") if lost == "experience" else text
            )
            return {kind: "" if kind == "experience" else []} if gone else good(kind, text, n)

        files, report, _ = made_palset(reply, threads=1, out=lost)
        after = files["input_en.json"]["0000"]["history"]
        assert [one["dialogue_timestamp"] for one in after] == [
            one["dialogue_timestamp"] for one in before[1:]
        ]
        kept = [] if lost in ("logs", "experience") else before[0]["logs"]
        assert after[0]["logs"] == kept + before[1]["logs"]
        assert report.count(step, "given up") == 1


def test_logs_out_of_time_are_left_out_of_the_last_attempt(made_palset):
    def reply(kind, text, n):
        answer = good(kind, text, n)
        if kind == "logs" and "2024-11-01" in field(text, "begin"):
            answer["logs"][3]["timestamp"] = "2023-01-01 10:00"
            answer["logs"][8]["timestamp"] = answer["logs"][7]["timestamp"]
            answer["logs"].reverse()
        return answer

    files, report, _ = made_palset(reply)
    entries = files["log_en.json"]["0000"]["2024-11-07"]
    # Of two in one minute the first of the answer stays.
    assert [int(one["content"].split()[5]) for one in entries] == [0, 1, 2, 4, 5, 6, *range(8, 20)]
    assert [one["timestamp"] for one in entries] == sorted(one["timestamp"] for one in entries)
    assert [one.outcome for one in report.rejections] == ["retried", "left out"]


def test_the_seed_decides_hours_and_plans_and_threads_do_not(made_palset):
    one, other = (made_palset(good, seed=seed, out=str(seed))[0] for seed in (0, 1))
    assert one["timeline_en.json"] == other["timeline_en.json"]
    assert one["input_en.json"] != other["input_en.json"]
    assert made_palset(good, out="again", threads=5)[0] == one


LOG, WORDS = "The user searched for thing 4 of 11-01 and viewed it.", "turn 2 | user"


def faulty(kind, text, mend=True):
    """A model that finds two faults in the logs and two in the dialogue of the first week, and may mend them."""
    if kind == "faults" and "[[ ## logs ## ]]" in text and LOG in text:
        return {kind: [{"number": 5, "reason": "bought, not searched"}]}
    if kind == "contradictions" and "L6: 2024-11-01" in text and "thing 5 " in text:
        return {kind: [{"record": "[l6]", "reason": "has no car"}]}
    if kind == "faults" and f"{WORDS} | requirement confirmation | I speak of T1_N1" in text:
        return {kind: [{"turn": 2, "role": "User", "reason": "asks for something else"}]}
    if kind == "contradictions" and "U1: I speak of T1_Q" in text:
        return {kind: [{"record": "U1", "reason": "hates that"}]}
    if kind == "mended" and "[[ ## entries ## ]]" in text:
        numbers = [int(line.split(" | ")[0]) for line in field(text, "entries")]
        said = "The user bought a lamp." if mend else f"{LOG} The thing 5 too."
        return {
            kind: [{"number": n, "type": "Transaction_record", "content": said} for n in numbers]
        }
    if kind == "mended":
        told = [line.split(" | ")[:2] for line in field(text, "faulty")]
        said = {
            1: "What now?" if mend else "I speak of T1_Q",
            2: "Yes." if mend else "I speak of T1_N1",
        }
        places = [(int(turn.split()[1]), role) for turn, role in told]
        return {
            kind: [{"turn": turn, "role": role, "content": said[turn]} for turn, role in places]
        }
    return None


def test_faults_are_mended_and_what_was_mended_is_looked_at_again(made_palset):
    files, report, calls = made_palset(
        lambda kind, text, n: faulty(kind, text) or good(kind, text, n), reviews=1
    )
    assert report.rejections == []
    entries = files["log_en.json"]["0000"]["2024-11-07"]
    assert [
        n for n, one in enumerate(entries, 1) if one["content"] == "The user bought a lamp."
    ] == [5, 6]
    assert {entries[4]["type"], entries[5]["type"]} == {"transaction record"}
    assert entries[4]["timestamp"].endswith(":28")
    first = files["input_en.json"]["0000"]["history"][0]["dialogue"]
    assert first["turn_1"]["user"] == {"action": "topic inquiry", "content": "What now?"}
    assert first["turn_2"]["user"] == {"action": "requirement confirmation", "content": "Yes."}
    dialogues = sum(map(len, files["input_en.json"]["0000"].values()))
    assert calls["mended"] == 1 + dialogues
    assert calls["faults"] == 8 + 1 + 2 * dialogues


def test_faults_that_stay_are_left_out_of_logs_and_reported_of_dialogues(made_palset):
    files, report, _ = made_palset(
        lambda kind, text, n: faulty(kind, text, mend=False) or good(kind, text, n), reviews=1
    )
    assert len(files["log_en.json"]["0000"]["2024-11-07"]) == 18
    outcomes = Counter((one.step, one.outcome) for one in report.rejections)
    assert outcomes["log review", "left out"] == 1
    assert outcomes["dialogue review", "kept"] == len(
        files["requirement_framework_en.json"]["0000"]
    )
    told = next(one.problems for one in report.rejections if one.step == "dialogue review")
    assert told == ("turn 1, user: hates that", "turn 2, user: asks for something else")


def test_faulty_logs_stay_where_too_few_would_be_left(made_palset):
    def reply(kind, text, n):
        if kind == "contradictions" and "L1: " in text:
            return {kind: [{"record": f"L{n}", "reason": "cannot be"} for n in range(1, 7)]}
        if kind == "mended":
            return {kind: []}
        return good(kind, text, n)

    files, report, _ = made_palset(reply, reviews=1)
    assert {len(entries) for entries in files["log_en.json"]["0000"].values()} == {20}
    assert {one.outcome for one in report.rejections if one.step == "log review"} == {"kept"}
    assert report.count("mending of logs", "given up") == 8


def agreed(part: str, said: list[list[dict[str, Any]]]) -> None:
    """Holds one prompt of every signature against its file: of several the first by their letters."""
    found = {}
    for name, kind in ((kind.__name__, kind) for kind in suite() if f".{part}" in kind.__module__):
        system = adapter().format_system_message(Step(name, kind).prompt)
        mine = [prompts.shown(prompt) for prompt in said if prompt[0]["content"] == system]
        assert mine, f"{name} is not asked: make its case reach it"
        found[name] = min(mine)
    prompts.agree(found, part)


def test_memoryquest_is_asked_for_as_was_reviewed(
    scripted: Any, profiles: Path, tmp_path: Path
) -> None:
    with prompts.heard(scripted(quest.good)) as found:
        runner = Runner(threads=1)
        make_memoryquest(
            read_profiles(profiles)[:1], tmp_path / "quest", runner, quest.Near(), lambda line: None
        )
    agreed("synthesis_memoryquest", found.prompts)


def test_a_palset_is_asked_for_as_was_reviewed(made_palset: Any) -> None:
    heard = prompts.Heard()
    with dspy.context(callbacks=[heard], adapter=adapter()):
        made_palset(lambda *asked: reviews.faulty(*asked[:2]) or good(*asked), reviews=1, threads=1)
    agreed("synthesis_palset", heard.prompts)
