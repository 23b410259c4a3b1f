"""Memory-R2: our results agree with those of the released code.

Memory-R2 is a method whose memory is a list of facts. A model extracts facts from each session of a
conversation; as the manager it then inserts, updates or deletes entries. The model is trained by
LoGo-GRPO: it writes the memory of a conversation several times (rollouts), and each rollout gets a
reward for the questions that its memory answers. Completions of the model are compared in groups:
an advantage says how much better the reward of one is than the rewards of the others. The loss
makes the model prefer completions with a high advantage.

A case (of a file `.jsonl`) was made by running the released code: it has an input, and the expected
result. `assert_matches_authors_code` compares our result with it; see `conftest.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler import History, Session, Turn
from mempiler.data.dataset import questions_after
from mempiler.data.locomo import Locomo, LocomoF1, evidence_ids
from mempiler.engines.embedders import embedder
from mempiler.engines.local.loss import advantages
from mempiler.engines.local.settings import Reinforcement
from mempiler.memory.word_count import count_memory_words, count_words
from mempiler.optimizers.logo_grpo.collect import Batch, Collector
from mempiler.optimizers.logo_grpo.groups import RewardedRollout, global_groups
from mempiler.optimizers.logo_grpo.reward import (
    QuestionScores,
    RewardSettings,
    compression_excess,
    released_f1,
    rollout_reward,
    session_rewards,
)
from mempiler.optimizers.logo_grpo.rollout import Rollout, SessionRun, single_attempt
from mempiler.optimizers.logo_grpo.settings import TrainingSettings
from mempiler.programs.call_recorder import Completion, PredictorCall
from mempiler.programs.catalog import build
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.reading.answer import read_answer
from mempiler.reading.repairs import UnreadableError
from mempiler.signatures.memory_r2 import AnswerFromMemories, ManageMemory

from tests.engines.local.groups import policy_rows

from .conftest import AssertMatches, Case

TOLERANCE_OF_FLOAT32 = 2e-5
"""Released advantages and losses are numbers of 32 bits."""
TOLERANCE_OF_SIX_PLACES = 1e-6
"""Released rewards are given to six places."""


# Metrics, words and replies.


@pytest.mark.cases_from_authors_code("memory_r2", "f1-*")
def test_f1_and_bleu_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """F1 and BLEU-1 compare the words of an answer with those of the right one, here "gold".

    Example of a case:
        input     {"answer": "cats and dogs", "gold": "cats dogs"}
        expected  {"f1": 0.8, "bleu1": 0.6666666666666666}
    """
    example = dspy.Example(category="4", answer=case["input"]["gold"], evidence=())
    prediction = dspy.Prediction(answer=case["input"]["answer"])

    f1 = released_f1(example, prediction)
    bleu1 = LocomoF1().score(example, prediction).parts["bleu1"]

    assert_matches_authors_code({"f1": f1, "bleu1": bleu1})


@pytest.mark.cases_from_authors_code("memory_r2", "words-*")
def test_words_of_a_text_are_counted_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A full stop separates words.

    Example of a case:
        input     {"text": "3.5 km"}
        expected  3
    """
    assert_matches_authors_code(count_words(case["input"]["text"]))


@pytest.mark.cases_from_authors_code("memory_r2", "answer-*")
def test_answers_are_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A reply without an answer, such as "tea" alone, is read as an empty answer.

    Example of a case:
        input     {"reply": "**Answer: tea**"}
        expected  "tea"
    """
    # The released code marks an answer by tags, we mark it by a header.
    without_closing_tags = re.sub("</answer>", "", case["input"]["reply"], flags=re.IGNORECASE)
    header = "\n[[ ## answer ## ]]\n"
    reply = re.sub("<answer>", header, without_closing_tags, flags=re.IGNORECASE)

    try:
        answer = read_answer(AnswerFromMemories, reply).outputs["answer"]
    except UnreadableError:
        # It is scored as an empty answer.
        answer = ""

    assert_matches_authors_code(answer)


@pytest.mark.cases_from_authors_code("memory_r2", "json-*")
def test_replies_of_the_manager_are_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    r"""The manager is the model that changes the memory; its reply is a JSON list of operations.

    A reply such as {"operations":[} cannot be read: "parsed" is false then.

    Example of a case:
        input     {"reply": "{\"operations\":[{\"operation\":\"insert\"}]}"}
        expected  {"parsed": true, "value": {"operations": [{"operation": "insert"}]}}
    """
    reply = case["input"]["reply"].replace('"operation"', '"op"')

    try:
        operations = read_answer(ManageMemory, reply, layout="json").outputs["operations"]
    except UnreadableError:
        ours = {"parsed": False, "value": None}
    else:
        names = [{"operation": operation.op.lower()} for operation in operations]
        ours = {"parsed": True, "value": {"operations": names}}

    assert_matches_authors_code(ours)


# Operations on a memory.

FIRST_DAY = datetime(2023, 5, 1)
"""The day of session 0; session 1 is on the next day, and so on."""

Command = dict[str, Any] | str
"""A released command, or its JSON, or the JSON of a list of commands."""


class Applied(NamedTuple):
    """A memory after a command, and what became of the command."""

    memory: FactMemory
    outcomes: list[str]
    """"success" or "error" for each operation."""


def is_list_of_commands(command: Command) -> bool:
    return isinstance(command, str) and command.startswith("[")


def fields_of(command: Command) -> dict[str, Any]:
    """Return the fields of a single command."""
    if isinstance(command, dict):
        return command
    return json.loads(command) if command.startswith("{") else {}


def session_of(command: Command, memory: FactMemory) -> Session:
    """Return a session with the turns that a command names, on the day of its session."""
    fields = fields_of(command)
    named_turns = json.dumps(fields.get("dia_id", command))
    turn_ids = re.findall(r"D\d+:\d+", named_turns) or ["D0:0"]
    turns = tuple(Turn(id=turn_id, speaker="Ann", text="said") for turn_id in turn_ids)

    session_number = 1 if is_list_of_commands(command) else fields.get("session_id")
    if isinstance(session_number, int):
        time = FIRST_DAY + timedelta(days=session_number)
    else:
        # The command comes in the session in which the memory was changed last.
        times = [fact.updated for fact in memory.facts if fact.updated]
        time = max(times, default=FIRST_DAY)
    return Session(id="S", time=time, turns=turns)


def with_our_names(command: Command) -> Command:
    renamed = json.dumps(command).replace("dia_id", "turn_id").replace("operation", "op")
    return json.loads(renamed)


def apply_command(scripted: Any, memory: FactMemory, command: Command) -> Applied:
    """Write a session in which our manager answers with a released command."""
    session = session_of(command, memory)
    fact = {"speaker": "Ann", "turn_id": session.turns[0].id, "fact": "Ann likes tea"}
    operations: Any = with_our_names(command)
    if not is_list_of_commands(command):
        operations = [operations]

    def reply(kind: str, text: str, number: int) -> dict[str, Any]:
        return {"facts": [fact]} if kind == "facts" else {"operations": operations}

    program = build("memory-r2", embedder=embedder(), parts=1, related=25, min_score=-1.0)
    with dspy.context(lm=scripted(reply)):
        new_memory: FactMemory = program.method.writer.update(memory, session, None).memory

    # The memory counts its operations by name; those that are not applied are "refused".
    outcomes: list[str] = []
    for name, count in new_memory.counts.items():
        new_operations = count - memory.counts.get(name, 0)
        outcome = "error" if name == "refused" else "success"
        outcomes.extend([outcome] * new_operations)
    if not outcomes and not is_list_of_commands(command):
        # The command could not be read.
        outcomes = ["error"]
    return Applied(new_memory, outcomes)


def day_number(time: datetime) -> int:
    return time.day - FIRST_DAY.day


def facts_in_released_form(memory: FactMemory) -> list[dict[str, Any]]:
    """Return the facts of a memory with the field names of the authors' code."""
    facts: list[dict[str, Any]] = []
    for fact in memory.facts:
        assert fact.time is not None
        assert fact.updated is not None
        facts.append(
            {
                "id": fact.id,
                "content": fact.content,
                "dia_ids": list(fact.sources),
                "session_id": day_number(fact.time),
                "last_session_id": day_number(fact.updated),
            }
        )
    return facts


def without_mentions(released_memories: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return released memories without the field "mentions", which nothing reads."""
    memories: list[dict[str, Any]] = []
    for memory in released_memories:
        memories.append({name: value for name, value in memory.items() if name != "mentions"})
    return memories


def different_sources(memory: FactMemory) -> list[str]:
    """Return the turns that the facts of a memory rest on, each once."""
    sources: list[str] = []
    for fact in memory.facts:
        for source in fact.sources:
            if source not in sources:
                sources.append(source)
    return sources


@pytest.mark.cases_from_authors_code("memory_r2", "ops-*")
def test_operations_change_a_memory_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    """A case is a series of commands to insert, update or delete a memory.

    It expects which of them succeed ("each"), the memories afterwards, the words of all memories,
    and the turns that they rest on ("evidence").

    Example of a case:
        input     {"commands": [{"operation": "insert", "sample_id": "conv-1",
                  "session_id": 1, "session_time": "1:00 pm on 8 May, 2023",
                  "speaker": "Ann", "content": "Ann likes tea", "dia_id": "D1:1"}]}
        expected  {"each": ["success"], "memories": [{"id": "m1",
                  "content": "Ann likes tea", "dia_ids": ["D1:1"], "session_id": 1,
                  "last_session_id": 1, "mentions": 1}], "words": 3, "evidence": ["D1:1"]}
    """
    commands = case["input"]["commands"]
    memory = FactMemory()
    outcomes: list[str] = []
    for command in commands if isinstance(commands, list) else [commands]:
        applied = apply_command(scripted, memory, command)
        memory = applied.memory
        outcomes.extend(applied.outcomes)

    ours = {
        "each": outcomes,
        "memories": facts_in_released_form(memory),
        "words": count_memory_words(memory),
        "evidence": different_sources(memory),
    }
    # Left out: `counts` and `status` repeat `each`.
    theirs = {
        "each": case["expected"]["each"],
        "memories": without_mentions(case["expected"]["memories"]),
        "words": case["expected"]["words"],
        "evidence": case["expected"]["evidence"],
    }
    assert_matches_authors_code(ours, theirs)


# Rewards, advantages and losses.


@pytest.mark.cases_from_authors_code("memory_r2", "compression-*")
def test_compression_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A memory that is too long for its sessions costs reward.

    The memory of the example has 90 words. Half of the session are 50 words, so the excess is 40
    of 100.

    Example of a case:
        input     {"memory_words": 90, "session_words": 100, "threshold": 0.5}
        expected  0.4
    """
    inputs = case["input"]

    excess = compression_excess(
        inputs["memory_words"], inputs["session_words"], inputs["threshold"]
    )

    assert_matches_authors_code(excess)


def rollout_of_sizes(sessions: int, session_words: int, memory_words: int) -> Rollout:
    """Return a rollout over sessions with so many words in all, and a memory with so many."""
    items: list[Session] = []
    for session_number in range(1, sessions + 1):
        turns: list[Turn] = []
        for turn_number in range(1, 10):
            is_first_turn = session_number == 1 and turn_number == 1
            # The first turn has all the words.
            text = "w " * session_words if is_first_turn else ""
            turn_id = f"D{session_number}:{turn_number}"
            turns.append(Turn(id=turn_id, speaker="Ann", text=text or " "))
        items.append(Session(id=f"D{session_number}", turns=tuple(turns)))

    memory = FactMemory().apply([Edit("INSERT", content="w " * memory_words)])
    runs = tuple(
        SessionRun(item, memory_before=FactMemory(), memory_after=memory, calls=())
        for item in items
    )
    return Rollout(History(id="h", items=tuple(items)), runs, memory)


class RolloutRewards(NamedTuple):
    """The rewards of one rollout."""

    terminal: float
    """That of the whole rollout."""
    per_session: Any
    """One for each session, by the questions about it."""
    cumulative_per_session: Any
    """One for each session, by the questions about it and all earlier ones."""


def rewards_of_rollouts(inputs: dict[str, Any]) -> list[RolloutRewards]:
    """Return the rewards of the rollouts of a case, by the scores of their questions."""
    settings = RewardSettings(compression=inputs["lambda"])
    examples = tuple(
        dspy.Example(evidence_ids=evidence_ids(evidence))
        for evidence in inputs["evidence_by_question"]
    )

    rewards: list[RolloutRewards] = []
    for number, scores in enumerate(inputs["scores_by_rollout"]):
        question_scores = QuestionScores(examples, tuple(float(score) for score in scores))
        # One size for all rollouts, or one for each.
        memory_words = inputs["memory_words"]
        if isinstance(memory_words, list):
            memory_words = memory_words[number]
        rollout = rollout_of_sizes(inputs["last_session"], inputs["session_words"], memory_words)

        rewards.append(
            RolloutRewards(
                rollout_reward(question_scores, rollout, settings),
                session_rewards(question_scores, rollout, settings),
                session_rewards(question_scores, rollout, settings, "cumulative"),
            )
        )
    return rewards


@pytest.mark.cases_from_authors_code("memory_r2", "reward-*")
def test_rewards_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A rollout is one attempt to write a memory for a whole conversation.

    A case has the scores of its questions, and the sizes of memory and sessions. It expects a
    reward of the whole rollout, and a reward for each session.

    Example of a case:
        input     {"evidence_by_question": [["D1:1"], ["D2:1"], ["D3:1"]],
                  "scores_by_rollout": [[1, 0.5, 0]], "memory_words": 50,
                  "session_words": 100}
        expected  {"terminal": [0.5], "per_session": [[1.0, 0.5, 0.0]]}
    """
    rewards = rewards_of_rollouts(case["input"])

    ours = {
        "terminal": [reward.terminal for reward in rewards],
        "per_session": [reward.per_session for reward in rewards],
        "cumulative_per_session": [reward.cumulative_per_session for reward in rewards],
    }
    theirs = {name: case["expected"][name] for name in ours}
    assert_matches_authors_code(ours, theirs, tolerance=TOLERANCE_OF_SIX_PLACES)


def advantages_by_group(
    rewards: list[float], groups: list[str], settings: Reinforcement
) -> list[float]:
    """Return the advantage of each reward in the group that is named at the same place."""
    all_advantages = [0.0] * len(rewards)
    for group in set(groups):
        places = [place for place, name in enumerate(groups) if name == group]
        group_advantages = advantages([rewards[place] for place in places], settings)
        for place, advantage in zip(places, group_advantages, strict=True):
            all_advantages[place] = advantage
    return all_advantages


@pytest.mark.cases_from_authors_code("memory_r2", "advantage-*")
def test_advantages_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """An advantage says how much better a reward is than the others of its group.

    "groups" has the name of the group of each reward.

    Example of a case:
        input     {"rewards": [1, 0], "groups": ["g", "g"]}
        expected  [0.707106, -0.707106]
    """
    # The ids of cases are advantage-00, advantage-centred-00 and advantage-rloo-00.
    kind = case["id"].split("-")[1]
    settings = Reinforcement(scale_rewards=kind != "centred", leave_one_out=kind == "rloo")

    ours = advantages_by_group(case["input"]["rewards"], case["input"]["groups"], settings)

    assert_matches_authors_code(ours, tolerance=TOLERANCE_OF_FLOAT32)


def rewards_of_turns(session_reward: float, number_of_turns: int) -> list[float]:
    """Return the rewards that we give to the turns, i.e. calls of a model, of a session."""
    manager = object()
    calls = tuple(
        PredictorCall(manager, {}, completions=[Completion((), "")]) for _ in range(number_of_turns)
    )
    session = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ann", text="said"),))
    run = SessionRun(session, memory_before=FactMemory(), memory_after=FactMemory(), calls=calls)
    rollout = Rollout(History(id="h", items=(session,)), (run,), FactMemory())

    # Only with another rollout, here one without reward, do the turns make groups.
    rewarded = RewardedRollout(rollout, session_rewards=[session_reward], end_reward=0.0)
    other = RewardedRollout(rollout, session_rewards=[0.0], end_reward=0.0)
    groups = global_groups("h", [rewarded, other], {"manage": manager}, RewardSettings())
    return [group.members[0].reward for group in groups]


@pytest.mark.cases_from_authors_code("memory_r2", "turn-return-*")
def test_every_turn_of_a_session_gets_the_same_reward_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """All turns that a session took get the sum of their rewards. A turn is one call of the model.

    The session of the example took two turns, whose rewards are 0 and 1. The other two were not
    taken.

    Example of a case:
        input     {"turn_rewards": [0, 1, 0, 1], "turns": 2}
        expected  [1.0, 1.0, 0.0, 0.0]
    """
    turn_rewards = case["input"]["turn_rewards"]
    turns = case["input"]["turns"]
    session_reward = float(sum(turn_rewards[:turns]))

    ours = rewards_of_turns(session_reward, number_of_turns=turns)

    turns_not_taken = len(turn_rewards) - turns
    assert_matches_authors_code([*ours, *[0.0] * turns_not_taken])


def padded(rows: list[list[float]]) -> list[list[float]]:
    """Return rows of numbers that are all as long as the longest one, with zeros at the end."""
    width = max(len(row) for row in rows)
    return [row + [0.0] * (width - len(row)) for row in rows]


def policy_loss(inputs: dict[str, Any]) -> float:
    """Return our loss of GRPO for the log-probabilities, advantages and settings of a case."""
    torch = pytest.importorskip("torch", reason="local models need the local extra")
    from mempiler.engines.local.loss import grpo_loss

    rows, settings = policy_rows(inputs)
    old_logprobs = torch.tensor(padded([old for old, _, _ in rows]))
    new_logprobs = torch.tensor(padded([new for _, new, _ in rows]))
    row_advantages = torch.tensor([float(advantage) for _, _, advantage in rows])
    # 1 for a token, 0 for the padding behind a short row.
    mask = torch.tensor(padded([[1.0] * len(old) for old, _, _ in rows]))

    loss = grpo_loss(
        new_logprobs, old_logprobs, row_advantages, mask, settings=Reinforcement(**settings)
    )
    return float(loss)


@pytest.mark.cases_from_authors_code("memory_r2", "policy-loss-*")
def test_the_policy_loss_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The loss of GRPO compares the tokens' log-probabilities before and after a step of training.

    In the example they did not change, so the loss is the advantage of 1 with another sign.

    Example of a case:
        input     {"old_logprobs": [[-1, -1, -1, -1]], "logprobs": [[-1, -1, -1, -1]],
                  "advantages": [[1, 1, 1, 1]], "clip": 0.2}
        expected  {"loss": -1.0}
    """
    # The other numbers of the released function are for its logs.
    released_loss = case["expected"]["loss"]
    assert_matches_authors_code(
        policy_loss(case["input"]), released_loss, tolerance=TOLERANCE_OF_FLOAT32
    )


# Questions and their evidence.


@pytest.mark.cases_from_authors_code("memory_r2", "dia-*")
def test_turn_ids_of_evidence_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """Evidence names turns: D8:17 is turn 17 of session 8.

    Example of a case:
        input     {"dia_id": "D8:17"}
        expected  {"reward": [8, 17]}
    """
    dia_id = case["input"]["dia_id"]
    turn_ids = evidence_ids([dia_id] if isinstance(dia_id, str) else [])

    # "D8:17" is [8, 17] in the cases.
    numbers: list[list[int]] = []
    for turn_id in turn_ids:
        session, turn = turn_id.removeprefix("D").split(":")
        numbers.append([int(session), int(turn)])

    assert_matches_authors_code(numbers or [[None, None]], [case["expected"]["reward"]])


LoadQuestions = Callable[..., Locomo]


@pytest.fixture
def load_questions(tmp_path: Path) -> LoadQuestions:
    """Return a function that reads a conversation with one question for each list of evidence.

    The conversation has thirty sessions of nine turns, in a file of LoCoMo's form.
    """

    def load(*evidence_by_question: Any, category: int = 1) -> Locomo:
        conversation: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Bob"}
        for session in range(1, 31):
            conversation[f"session_{session}_date_time"] = "1:00 pm on 8 May, 2023"
            conversation[f"session_{session}"] = [
                {"dia_id": f"D{session}:{turn}", "speaker": "Ann", "text": "said"}
                for turn in range(1, 10)
            ]
        questions = [
            {"question": f"{number}?", "answer": "x", "evidence": evidence, "category": category}
            for number, evidence in enumerate(evidence_by_question)
        ]
        sample = {"sample_id": "c", "conversation": conversation, "qa": questions}
        path = tmp_path / "conversations.json"
        path.write_text(json.dumps([sample]))
        return Locomo.load(path)

    return load


def session_that_allows(questions: Locomo) -> int | None:
    """Return the session after which the one question of a benchmark can be asked.

    None if the question is not in the headline score, or names no evidence: then only the end of
    the conversation allows it.
    """
    [example] = questions.examples
    if not questions.in_headline(example) or not example.evidence:
        return None
    for session in range(1, len(example.history) + 1):
        if questions_after([example], example.history, session):
            return session
    raise AssertionError("the question can never be asked")


@pytest.mark.cases_from_authors_code("memory_r2", "latest-session-*")
def test_a_question_waits_for_the_same_session_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, load_questions: LoadQuestions
) -> None:
    """A question waits for the last session that its evidence names: D9:1 is in session 9.

    Example of a case:
        input     {"evidence": ["D9:1", "D2:2"]}
        expected  9
    """
    questions = load_questions(case["input"]["evidence"])

    assert_matches_authors_code(session_that_allows(questions))


@pytest.mark.cases_from_authors_code("memory_r2", "question-time-*")
def test_a_question_is_asked_in_the_same_sessions_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, load_questions: LoadQuestions
) -> None:
    """A question is asked while a memory is written, as soon as its last evidence was said.

    In the session of its last evidence it is "current"; later it is "distant". It is None as long
    as it cannot be asked. The first number of "session_last" is the current session.

    Example of a case:
        input     {"evidence": ["D1:1"], "category": 1, "session_last": [2, 9]}
        expected  "distant"
    """
    inputs = case["input"]
    session = session_that_allows(load_questions(inputs["evidence"], category=inputs["category"]))
    current_session = inputs["session_last"][0]

    if session is None or session > current_session:
        ours = None
    elif session == current_session:
        ours = "current"
    else:
        ours = "distant"

    assert_matches_authors_code(ours)


@pytest.mark.cases_from_authors_code("memory_r2", "evidence-per-session-*")
def test_each_session_has_the_same_evidence_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, load_questions: LoadQuestions
) -> None:
    """A session is rewarded for the questions whose evidence it has: D3:2 is in session 3.

    Example of a case:
        input     {"evidence_by_question": [["D1:1", "D3:2"], ["D2:1"]], "sessions": 3}
        expected  {"1": ["D1:1"], "2": ["D2:1"], "3": ["D3:2"]}
    """
    questions = load_questions(*case["input"]["evidence_by_question"])
    examples = tuple(questions.examples)
    scores = QuestionScores(examples, (0.0,) * len(examples))
    evidence_by_session: dict[str, list[str]] = {}

    for session in examples[0].history.items[: case["input"]["sessions"]]:
        session_turns = [turn.id for turn in session.turns]
        evidence: list[str] = []
        for example in scores.about_session(session_turns).examples:
            evidence.extend(turn_id for turn_id in example.evidence_ids if turn_id in session_turns)
        # The id of session 1 is "D1".
        evidence_by_session[session.id.removeprefix("D")] = evidence

    assert_matches_authors_code(evidence_by_session)


@pytest.mark.cases_from_authors_code("memory_r2", "split")
def test_the_split_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, load_questions: LoadQuestions
) -> None:
    """The conversations of training, validation and test are fixed.

    The only case:
        expected  {"train": ["conv-43", "conv-47"], "validation": ["conv-44"], "test": ["conv-41",
                  "conv-49", "conv-50", "conv-42", "conv-48", "conv-30", "conv-26"], ...}
    """
    expected = case["expected"]
    conversations = [*expected["train"], *expected["validation"], *expected["test"]]
    questions = load_questions(["D1:1"])

    split = Locomo(questions.examples, questions.source, conversations=conversations).fixed_split()

    assert split is not None
    ours = [sorted(part) for part in split]
    theirs = [sorted(expected[part]) for part in ("train", "validation", "test")]
    assert_matches_authors_code(ours, theirs)


@pytest.mark.cases_from_authors_code("memory_r2", "split")
def test_questions_of_category_5_are_left_out_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, load_questions: LoadQuestions
) -> None:
    """A question that is left out is not in the headline score.

    The only case:
        expected  {"skip_category_5": true, ...}
    """
    questions = load_questions(["D1:1"], category=5)
    [question] = questions.examples

    is_left_out = not questions.in_headline(question)

    assert_matches_authors_code(is_left_out, case["expected"]["skip_category_5"])


@pytest.mark.cases_from_authors_code("memory_r2", "split")
def test_a_training_asks_about_earlier_sessions_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, load_questions: LoadQuestions
) -> None:
    """A question about session 1 is asked after session 9, too.

    The only case:
        expected  {"cumulative_training_questions": true, ...}
    """
    [question] = load_questions(["D1:1"]).examples

    questions = questions_after([question], question.history, sessions=9)

    assert_matches_authors_code(
        questions == [question], case["expected"]["cumulative_training_questions"]
    )


# Groups of completions for LoGo-GRPO.


class DifferentScores:
    """A metric that gives every answer another score: 0, 1, ..., 6, 0, ..."""

    def __init__(self) -> None:
        self.number_of_answers = 0

    def __call__(self, example: dspy.Example, prediction: dspy.Prediction) -> int:
        score = self.number_of_answers % 7
        self.number_of_answers += 1
        return score


Collect = Callable[..., list[Batch]]


@pytest.fixture
def collect(scripted: Any, fact_replies: Any, make_history: Any) -> Collect:
    """Return a function that collects batches of LoGo-GRPO, for histories with one question each.

    `collect(sessions=3, objective="grpo")`: the settings are those of the training.
    """

    def collect_batches(
        sessions: int, conversations: int = 1, steps: int = 1, **settings: Any
    ) -> list[Batch]:
        program = build("memory-r2", embedder=embedder(), adapter="chat")
        items = make_history(sessions, turns=1).items
        histories = [History(id=f"h{number}", items=items) for number in range(conversations)]

        def question(history: History, sessions_written: int) -> list[dspy.Example]:
            example = dspy.Example(id="q", history=history, question="What?", evidence_ids=())
            return [example.with_inputs("history", "question", "evidence_ids")]

        training = TrainingSettings(
            histories=conversations, threads=1, session_reward="trajectory", **settings
        )
        collector = Collector(program, histories, question, DifferentScores(), training)
        lm = scripted(fact_replies)
        with dspy.context(adapter=single_attempt(program), trace=None):
            return [collector.collect(step, sessions, lm, lm) for step in range(1, steps + 1)]

    return collect_batches


def sizes_of_groups(batch: Batch) -> dict[str, int]:
    """Return how many groups a batch has, and how many members each of them.

    No two groups have the same conversation, start, session and role. What local groups start from
    is checked in tests/optimizers/logo_grpo/test_rollouts.py.
    """
    keys = {
        (group.key.history, group.key.start, group.key.session, group.key.role)
        for group in batch.groups
    }
    assert len(keys) == len(batch.groups)

    statistics = batch.statistics
    # Groups without variance are left out of the batch, and counted.
    number_of_groups = (
        statistics.groups_global
        + statistics.groups_local
        + statistics.no_variance_global
        + statistics.no_variance_local
    )
    [members_each] = {len(group.members) for group in batch.groups}
    return {"groups": int(number_of_groups), "members_each": members_each}


@pytest.mark.cases_from_authors_code("memory_r2", "groups-global")
def test_global_groups_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, collect: Collect
) -> None:
    """A group has the completions that are compared with each other.

    A global group has one member for each of the 16 rollouts, and stands for one session and one
    role, so 3 sessions with 2 roles have 6.

    Example of a case:
        input     {"rollouts": 16, "conversations": 1, "sessions": 3, "roles": 2}
        expected  {"groups": 6, "members_each": 16, "one_group_per": "conversation, session,
                  role"}
    """
    inputs = case["input"]
    expected = case["expected"]
    assert expected["one_group_per"] == "conversation, session, role"

    [batch] = collect(
        sessions=inputs["sessions"], objective="grpo", num_rollouts=inputs["rollouts"]
    )

    ours = sizes_of_groups(batch)
    assert_matches_authors_code(ours, {name: expected[name] for name in ours})


@pytest.mark.cases_from_authors_code("memory_r2", "groups-local")
def test_local_groups_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, collect: Collect
) -> None:
    """A local group runs one session several times from the same memory.

    Two sessions with two roles, each run 4 times, make 4 groups of 4.

    Example of a case:
        input     {"inner_n": 4, "sessions_drawn": 2, "roles": 2}
        expected  {"groups": 4, "members_each": 4}
    """
    inputs = case["input"]
    expected = case["expected"]
    assert expected["one_group_per"] == "drawn session, role"

    [batch] = collect(
        sessions=inputs["sessions_drawn"],
        objective="local",
        num_rollouts=2,
        local_n=inputs["inner_n"],
        # All sessions are drawn.
        local_fraction=1.0,
    )

    ours = sizes_of_groups(batch)
    assert_matches_authors_code(ours, {name: expected[name] for name in ours})


Draw = dict[str, set[Any]]
"""The sessions of each conversation that were run again for local groups, by conversation."""


def drawn_sessions(batch: Batch) -> Draw:
    """Return the sessions of a batch that were run again for local groups."""
    sessions: Draw = {}
    for group in batch.groups:
        if group.key.kind == "local":
            sessions.setdefault(group.key.history, set()).add(group.key.start)
    return sessions


def number_of_sessions(draws: list[Draw]) -> int:
    return sum(len(sessions) for draw in draws for sessions in draw.values())


def coin_of(draws: list[Draw]) -> str:
    """Return what a coin is thrown for to draw it, in the words of the cases."""
    for draw in draws:
        sessions_of_conversations = list(draw.values())
        for sessions in sessions_of_conversations:
            if sessions != sessions_of_conversations[0]:
                return "session and conversation"
    return "session, for the whole batch"


def rollouts_continued_per_conversation(batch: Batch) -> int:
    """Return from how many rollouts of a conversation a session is run again."""
    groups_per_start = Counter(
        (group.key.history, group.key.start, group.key.role) for group in batch.groups
    )
    return max(groups_per_start.values(), default=1)


@pytest.mark.cases_from_authors_code("memory_r2", "groups-draw")
def test_sessions_are_drawn_to_be_run_again_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, collect: Collect
) -> None:
    """By default half of the sessions are drawn for local groups.

    A case expects what a coin is thrown for (the sessions of the whole batch, or of each
    conversation), and how many rollouts of a conversation are continued.

    Example of a case:
        input     {"inner_sampling_fraction": 0.5}
        expected  {"coin_per": "session, for the whole batch",
                  "rollouts_taken_per_conversation": 1}
    """
    assert TrainingSettings().local_fraction == case["input"]["inner_sampling_fraction"]

    batches = collect(
        sessions=4, conversations=2, steps=6, objective="local", num_rollouts=2, local_n=2
    )

    draws = [drawn_sessions(batch) for batch in batches]
    # Some sessions are drawn, but not all four sessions of two conversations in six steps.
    assert 0 < number_of_sessions(draws) < 4 * 2 * 6
    assert_matches_authors_code(
        {
            "coin_per": coin_of(draws),
            "rollouts_taken_per_conversation": rollouts_continued_per_conversation(batches[0]),
        }
    )
