"""MemBench: the forms of its files, how steps are counted, the time of a question, and options.

MemBench asks multiple-choice questions about what a user said. A trajectory is the messages of one
user with a question. A step is one message, or a pair of a message and its reply. The target steps
hold the answer; they are the evidence. In files of the "first" agent user and assistant talk; in
those of the "third" agent the user talks alone. A list of messages is a session, or is cut into
days.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import build
from mempiler.data.catalog import benchmark
from mempiler.errors import UserError

from .conftest import prompts_to
from .forms import EXAMPLE_FILES, history_lines, write_files

TRAJECTORY = EXAMPLE_FILES["membench"]["simple.json"]["roles"][0]
RAIN_STEP = TRAJECTORY["message_list"][1][0]
"""The user says "It rains.", and the agent is silent."""
AUNT_STEP = TRAJECTORY["message_list"][0][1]
"""The user says "My aunt Ida is a vet.", and the agent answers. The question is about the aunt."""

# The same two steps, of 30 September and 1 October, in the three forms that files have.
MESSAGES = [
    {"message": "Hello.", "time": "'2024-09-30 08:00' Monday", "place": "Faro"},
    {"message": "She sings.", "time": "'2024-10-01 08:05' Tuesday", "place": "Faro"},
]
TEXTS = [
    "Hello. (place: Faro; time'2024-09-30 08:00' Monday)",
    "She sings. (place: Faro; time'2024-10-01 08:05' Tuesday)",
]
PAIRS = [{"user": text, "agent": "Good."} for text in TEXTS]


def trajectory(messages: list[Any], target_steps: list[Any]) -> dict[str, Any]:
    """Return a trajectory whose question rests on the target steps."""
    return {
        "message_list": messages,
        "QA": {**TRAJECTORY["QA"], "target_step_id": target_steps},
    }


@pytest.mark.parametrize(
    ("file_name", "content", "example_id"),
    [
        pytest.param(
            "noisy.json",
            {"events": [trajectory(MESSAGES, target_steps=[1])]},
            "third:noisy:events:1",
            id="a list of messages, cut into days",
        ),
        pytest.param(
            "highlevel.json",
            {"food": [trajectory([MESSAGES], target_steps=[[1, 0]])]},
            "third:highlevel:food:1",
            id="a session of messages, cut into days",
        ),
        pytest.param(
            "joined.json",
            {"simple": {"roles": [trajectory(TEXTS, target_steps=[1])]}},
            "third:simple:roles:1",
            id="a file of several types, with texts",
        ),
    ],
)
def test_every_form_of_messages_of_a_user_is_read(
    tmp_path: Path, file_name: str, content: dict[str, Any], example_id: str
) -> None:
    """The question is about the second day, on which the user says "She sings.", as turn D2:1.

    Files in which nobody answers the user are said to be of the "third" agent. An id has the agent,
    the type, the scenario and a number.
    """
    path = write_files(tmp_path, {file_name: content})

    [example] = benchmark("membench", path).examples

    assert example.id == example_id
    assert list(example.evidence) == ["D2:1"]
    last_line = history_lines(example)[-1]
    assert last_line == "[D2:1] (1 October 2024, Tuesday 08:05) user: She sings. (place: Faro)"


@pytest.mark.parametrize(
    ("file_name", "content", "example_id"),
    [
        pytest.param(
            "joined.json",
            {"noisy": {"book": [trajectory(PAIRS, target_steps=[1])]}},
            "first:noisy:book:1",
            id="a file of several types",
        ),
        pytest.param(
            "all_sampled20.json",
            {"Emotion": [trajectory([PAIRS[:1], PAIRS[1:]], target_steps=[[1, 1]])]},
            "first:Emotion:1",
            id="a file of several types without scenarios",
        ),
    ],
)
def test_every_form_of_dialogues_of_user_and_agent_is_read(
    tmp_path: Path, file_name: str, content: dict[str, Any], example_id: str
) -> None:
    """The question is about the second day: the user says "She sings.", and an assistant answers.

    Files in which an assistant answers are said to be of the "first" agent.
    """
    path = write_files(tmp_path, {file_name: content})

    [example] = benchmark("membench", path).examples

    assert example.id == example_id
    assert list(example.evidence) == ["D2:1", "D2:2"]
    user_line, _agent_line = history_lines(example)[-2:]
    assert user_line == "[D2:1] (1 October 2024, Tuesday 08:05) user: She sings. (place: Faro)"


def evidence_in_second_session(
    folder: Path, second_session: list[Any], target_step: int
) -> list[str]:
    """Return the evidence of a question that rests on a step of the second session.

    The first session has two steps. Each step makes two turns, of the user and of the agent; the
    turn of an agent who says nothing is left out, but counts for the ids of the later ones.
    """
    sessions = [[RAIN_STEP, RAIN_STEP], second_session]
    content = {"roles": [trajectory(sessions, target_steps=[[target_step, 1]])]}
    path = write_files(folder, {"simple.json": content})

    [example] = benchmark("membench", path).examples
    return list(example.evidence)


def test_steps_count_through_all_sessions_if_the_fact_is_found_so(tmp_path: Path) -> None:
    """The question is about an aunt. Files count steps in two ways, and the aunt shows which.

    The first session has the steps 0 and 1, so step 2 is the first one of the second session.
    """
    second_session = [AUNT_STEP, RAIN_STEP, RAIN_STEP]
    evidence = evidence_in_second_session(tmp_path, second_session, target_step=2)
    assert evidence == ["D2:1", "D2:2"]


def test_steps_count_in_their_session_if_the_fact_is_found_so(tmp_path: Path) -> None:
    """The question is about an aunt. Files count steps in two ways, and the aunt shows which.

    Steps count from 0, so step 2 is the third one of the second session: the turns D2:5 and D2:6.
    """
    second_session = [RAIN_STEP, RAIN_STEP, AUNT_STEP]
    evidence = evidence_in_second_session(tmp_path, second_session, target_step=2)
    assert evidence == ["D2:5", "D2:6"]


@pytest.mark.parametrize("target_step", [0, 2])
def test_without_the_fact_a_step_of_the_second_session_is_found_by_its_number(
    tmp_path: Path, target_step: int
) -> None:
    """The first session has two steps, and the target names the second session.

    Its first step has the number 2 if steps count through all sessions, and 0 if they count anew.
    """
    second_session = [RAIN_STEP, RAIN_STEP, RAIN_STEP]
    evidence = evidence_in_second_session(tmp_path, second_session, target_step)
    assert evidence == ["D2:1"]


@pytest.mark.parametrize("method", ["turn-rag", "memory-bank"])
def test_the_time_of_a_question_is_in_the_prompt_and_in_the_search(
    scripted: Any, method: str
) -> None:
    """In the released code, too, memories are searched with the time of the question.

    All methods do that; two of them are tried here.
    """
    loaded = benchmark("membench")
    example = next(example for example in loaded.examples if example.date)
    dated_question = f"{example.question} (asked on {example.date})"
    program = build(method, loaded.task)
    lm = scripted(lambda kind, prompt, number: {kind: "(a)"})

    with dspy.context(lm=lm):
        program(**example.inputs())

    assert program.query_of(example).search_text == dated_question
    last_prompt = prompts_to(lm)[-1]
    assert f"[[ ## question ## ]]\n{dated_question}\n" in last_prompt


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"agent": "third"}, 12),
        ({"level": "high"}, 4),
        ({"types": "simple, noisy"}, 6),
        ({"scenarios": "food"}, 2),
    ],
)
def test_options_choose_a_part_of_the_sample(options: dict[str, str], count: int) -> None:
    """The sample has 24 questions. Of these, 12 have the agent "third", and 4 the level "high"."""
    assert len(benchmark("membench", **options).examples) == count


@pytest.mark.parametrize("option", ["agent", "level", "types", "scenarios"])
def test_an_unknown_value_of_an_option_is_refused(option: str) -> None:
    with pytest.raises(UserError, match=r"unknown \w+ of these questions 'x'|should be"):
        benchmark("membench", **{option: "x"})


def test_one_question_in_two_files_of_a_folder_is_refused(tmp_path: Path) -> None:
    """The id is made of names inside the file, so a copy of the file has the same id."""
    content = {"roles": [TRAJECTORY]}
    write_files(tmp_path, {"AAgent/simple.json": content, "BAgent/simple.json": content})
    with pytest.raises(UserError, match="'first:simple:roles:1' is in another file too"):
        benchmark("membench", tmp_path)
