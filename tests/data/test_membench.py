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
from mempiler.data.check import check
from mempiler.errors import UserError

from .forms import EXAMPLE_FILES, history_lines, write_files

TRAJECTORY = EXAMPLE_FILES["membench"]["simple.json"]["roles"][0]
PLAIN_STEP = TRAJECTORY["message_list"][1][0]
FACT_STEP = TRAJECTORY["message_list"][0][1]

# The same two steps in the three forms that files have.
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
    ("name", "content", "example_id", "evidence"),
    [
        pytest.param(
            "noisy",
            {"events": [trajectory(MESSAGES, [1])]},
            "third:noisy:events:1",
            ["D2:1"],
            id="a list of messages, cut into days",
        ),
        pytest.param(
            "highlevel",
            {"food": [trajectory([MESSAGES], [[1, 0]])]},
            "third:highlevel:food:1",
            ["D2:1"],
            id="a session",
        ),
        pytest.param(
            "joined",
            {"simple": {"roles": [trajectory(TEXTS, [1])]}},
            "third:simple:roles:1",
            ["D2:1"],
            id="a joined file of texts",
        ),
        pytest.param(
            "joined",
            {"noisy": {"book": [trajectory(PAIRS, [1])]}},
            "first:noisy:book:1",
            ["D2:1", "D2:2"],
            id="a joined file of pairs",
        ),
        pytest.param(
            "all_sampled20",
            {"Emotion": [trajectory([PAIRS[:1], PAIRS[1:]], [[1, 1]])]},
            "first:Emotion:1",
            ["D2:1", "D2:2"],
            id="a joined file of sessions, without scenarios",
        ),
    ],
)
def test_every_form_is_read_with_its_agent_its_days_and_its_evidence(
    tmp_path: Path, name: str, content: dict[str, Any], example_id: str, evidence: list[str]
) -> None:
    """In each form the fact is told on the second day, so the evidence begins with turn D2:1.

    The id of an example is agent, type, scenario and number. Pairs have an assistant: agent
    "first".
    """
    path = write_files(tmp_path, {f"{name}.json": content})

    [example] = benchmark("membench", path).examples

    assert example.id == example_id
    assert list(example.evidence) == evidence
    # The evidence is the end of the history. Its first line is what the user said.
    user_line = history_lines(example)[-len(evidence)]
    assert user_line == "[D2:1] (1 October 2024, Tuesday 08:05) user: She sings. (place: Faro)"


@pytest.mark.parametrize(
    ("second_session", "target_step", "evidence"),
    [
        # Step 2 is the first one of the second session if steps are counted through all sessions,
        # and the last one if they are counted in their session.
        pytest.param(
            [FACT_STEP, PLAIN_STEP, PLAIN_STEP],
            [2, 1],
            ["D2:1", "D2:2"],
            id="the fact shows that steps are counted through all sessions",
        ),
        pytest.param(
            [PLAIN_STEP, PLAIN_STEP, FACT_STEP],
            [2, 1],
            ["D2:5", "D2:6"],
            id="the fact shows that steps are counted in their session",
        ),
        pytest.param([PLAIN_STEP] * 3, [2, 1], ["D2:1"], id="without a fact, step 2"),
        pytest.param([PLAIN_STEP] * 3, [0, 1], ["D2:1"], id="without a fact, step 0"),
    ],
)
def test_the_file_decides_whether_steps_count_in_their_session(
    tmp_path: Path, second_session: list[Any], target_step: list[int], evidence: list[str]
) -> None:
    """A target step is [step, session], and files count the steps in two ways.

    The fact that the question is about shows which way it is. Each step makes two turns, of the
    user and of the agent.
    """
    sessions = [[PLAIN_STEP, PLAIN_STEP], second_session]
    content = {"roles": [trajectory(sessions, [target_step])]}
    path = write_files(tmp_path, {"simple.json": content})

    [example] = benchmark("membench", path).examples

    assert list(example.evidence) == evidence


@pytest.mark.parametrize("method", ["turn-rag", "memory-bank"])
def test_the_time_of_a_question_is_in_the_prompt_and_in_the_search(
    scripted: Any, method: str
) -> None:
    """In the released code, too, memories are searched with the time of the question.

    All methods get it; two of them are tried here.
    """
    loaded = benchmark("membench")
    dated_examples = [example for example in loaded.examples if example.date]
    example = dated_examples[0]
    program = build(method, loaded.task)
    lm = scripted(lambda kind, prompt, number: {kind: "(a)"})

    with dspy.context(lm=lm):
        program(**example.inputs())

    dated_question = f"{example.question} (asked on {example.date})"
    assert program.query_of(example).search_text == dated_question
    last_prompt = lm.engine.prompts[-1][1]
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
    """The sample has 24 questions, each of another trajectory.

    Of these, 12 have the agent "third", 4 a type that begins with "highlevel", and so on.
    """
    assert len(benchmark("membench", **options).examples) == count


@pytest.mark.parametrize("option", ["agent", "level", "types", "scenarios"])
def test_an_unknown_value_of_an_option_is_refused(option: str) -> None:
    """The options choose a part of the questions."""
    with pytest.raises(UserError, match=r"unknown \w+ of these questions 'x'|should be"):
        benchmark("membench", **{option: "x"})


def test_one_question_in_two_files_of_a_folder_is_refused(tmp_path: Path) -> None:
    """The id is made of names inside the file, so a copy of the file has the same id."""
    content = {"roles": [TRAJECTORY]}
    write_files(tmp_path, {"AAgent/simple.json": content, "BAgent/simple.json": content})
    with pytest.raises(UserError, match="'first:simple:roles:1' is in another file too"):
        benchmark("membench", tmp_path)


def test_findings_stand_in_the_order_of_the_file(tmp_path: Path) -> None:
    """One trajectory names a step 7 that does not exist, another one is empty."""
    content = {
        "simple": {"roles": [trajectory(MESSAGES, [7])]},
        "noisy": {"roles": [{}, trajectory(MESSAGES, [1])]},
    }

    report = check("membench", write_files(tmp_path, {"joined.json": content}))

    # Two findings may be about fields of one trajectory.
    places = [finding.where.partition(", field")[0] for finding in report.findings]
    assert list(dict.fromkeys(places)) == [
        "joined.json, simple, roles, trajectory 1",
        "joined.json, noisy, roles, trajectory 1",
    ]
