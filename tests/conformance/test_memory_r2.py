"""Memory-R2: what its released code gives for metrics, replies, operations, rewards, advantages and losses."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

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
from mempiler.programs.catalog import build
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.call_recorder import Completion, PredictorCall
from mempiler.reading.answer import read_answer
from mempiler.reading.repairs import UnreadableError
from mempiler.signatures.memory_r2 import AnswerFromMemories, ManageMemory

from tests.engines.local.groups import policy_rows

CLOSE = 2e-5
"""The released numbers are of 32 bits."""
PRINTED = 1e-6
"""Rewards and losses are given to six places."""
TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
TURN = re.compile(r"D\d+:\d+")


@pytest.mark.vectors("memory_r2", "f1-*")
def test_f1_and_bleu_are_the_released_ones(
    case: dict[str, Any], agrees: Callable[..., None]
) -> None:
    said, gold = case["input"]["answer"], case["input"]["gold"]
    example, prediction = (
        dspy.Example(answer=gold, category="4", evidence=()),
        dspy.Prediction(answer=said),
    )
    bleu1 = LocomoF1().score(example, prediction).parts["bleu1"]
    agrees({"f1": released_f1(example, prediction), "bleu1": bleu1})


@pytest.mark.vectors("memory_r2", "answer-*")
def test_answers_are_read_as_released(case: dict[str, Any], agrees: Callable[..., None]) -> None:
    # Their mark of the answer is a tag, ours a header. An answer that cannot be read is scored as an empty one.
    reply = TAG.sub(lambda tag: "" if tag[1] else "\n[[ ## answer ## ]]\n", case["input"]["reply"])
    try:
        found = read_answer(AnswerFromMemories, reply)[0]["answer"]
    except UnreadableError:
        found = ""
    agrees(found)


@pytest.mark.vectors("memory_r2", "json-*")
def test_replies_of_the_manager_are_read_as_released(
    case: dict[str, Any], agrees: Callable[..., None]
) -> None:
    try:
        found = read_answer(
            ManageMemory, case["input"]["reply"].replace('"operation"', '"op"'), layout="json"
        )[0]
    except UnreadableError:
        agrees({"parsed": False, "value": None})
        return
    agrees(
        {
            "parsed": True,
            "value": {"operations": [{"operation": o.op.lower()} for o in found["operations"]]},
        }
    )


@pytest.mark.vectors("memory_r2", "ops-*")
def test_operations_change_a_memory_as_released(
    case: dict[str, Any], agrees: Callable[..., None], scripted: Any
) -> None:
    batch, theirs = case["input"]["commands"], case["expected"]
    memory, each = FactMemory(), []
    for command in batch if isinstance(batch, list) else [batch]:
        memory, outcomes = _written(scripted, memory, command)
        each += outcomes
    ours = {
        "each": each,
        "memories": [_row(fact) for fact in memory.facts],
        "words": count_memory_words(memory),
        "evidence": list(dict.fromkeys(source for fact in memory.facts for source in fact.sources)),
    }
    kept = [{key: row[key] for key in _KEPT} for row in theirs["memories"]]
    # `counts` repeats `each` by kind, and `mentions` is bookkeeping that nothing reads.
    agrees(
        ours,
        {
            "each": theirs["each"],
            "memories": kept,
            "words": theirs["words"],
            "evidence": theirs["evidence"],
        },
    )


_KEPT = ("id", "content", "dia_ids", "session_id", "last_session_id")
_ORIGIN = datetime(2023, 5, 1)


def _written(scripted: Any, memory: FactMemory, command: Any) -> tuple[FactMemory, list[str]]:
    """A memory after a session whose manager answered with one command, and what became of it."""
    listed = isinstance(command, str) and command[:1] == "["
    said = (
        command if isinstance(command, dict) else json.loads(command) if command[:1] == "{" else {}
    )
    turns = TURN.findall(json.dumps(said.get("dia_id", command))) or ["D0:0"]
    day = next(
        (n for n in (said.get("session_id"), 1 if listed else None) if isinstance(n, int)), None
    )
    latest = max((fact.updated for fact in memory.facts if fact.updated), default=_ORIGIN)
    item = Session(
        id="S",
        time=latest if day is None else _ORIGIN.replace(day=1 + day),
        turns=tuple(Turn(id=turn, speaker="Ann", text="said") for turn in turns),
    )
    renamed = json.dumps(command).replace("dia_id", "turn_id").replace("operation", "op")
    operations = json.loads(renamed) if listed else [json.loads(renamed)]
    facts = [{"speaker": "Ann", "turn_id": turns[0], "fact": "Ann likes tea"}]

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        return {"facts": facts} if kind == "facts" else {"operations": operations}

    made = build("memory-r2", embedder=embedder(), parts=1, related=25, min_score=-1.0)
    with dspy.context(lm=scripted(reply)):
        after: FactMemory = made.method.writer.update(memory, item, None).memory
    gained = {name: n - memory.counts.get(name, 0) for name, n in after.counts.items()}
    done = [name for name, n in gained.items() for _ in range(n)]
    return after, ["error" if name == "refused" else "success" for name in done] or (
        [] if listed else ["error"]
    )


def _row(fact: Any) -> dict[str, Any]:
    days = {"session_id": fact.time, "last_session_id": fact.updated}
    found = {"id": fact.id, "content": fact.content, "dia_ids": list(fact.sources)}
    return {**found, **{name: time.day - 1 for name, time in days.items()}}


@pytest.mark.vectors("memory_r2", "words-*")
def test_texts_are_cut_into_the_released_words(
    case: dict[str, Any], agrees: Callable[..., None]
) -> None:
    agrees(count_words(case["input"]["text"]))


@pytest.mark.vectors("memory_r2", "compression-*")
def test_compression_is_the_released_one(case: dict[str, Any], agrees: Callable[..., None]) -> None:
    given = case["input"]
    agrees(compression_excess(given["memory_words"], given["session_words"], given["threshold"]))


@pytest.mark.vectors("memory_r2", "reward-*")
def test_rewards_are_the_released_ones(case: dict[str, Any], agrees: Callable[..., None]) -> None:
    given = case["input"]
    settings = RewardSettings(compression=given["lambda"])
    sizes = given["memory_words"]
    whole: dict[str, list[Any]] = {"terminal": [], "per_session": [], "cumulative_per_session": []}
    for n, scores in enumerate(given["scores_by_rollout"]):
        examples = tuple(
            dspy.Example(evidence_ids=evidence_ids(found))
            for found in given["evidence_by_question"]
        )
        answered = QuestionScores(examples, tuple(map(float, scores)))
        rollout = _rollout(
            given["last_session"],
            given["session_words"],
            sizes[n] if isinstance(sizes, list) else sizes,
        )
        whole["terminal"].append(rollout_reward(answered, rollout, settings))
        whole["per_session"].append(session_rewards(answered, rollout, settings))
        whole["cumulative_per_session"].append(
            session_rewards(answered, rollout, settings, "cumulative")
        )
    agrees(whole, {name: case["expected"][name] for name in whole}, within=PRINTED)


def _rollout(sessions: int, said: int, kept: int) -> Rollout:
    """A trajectory over sessions of so many words together, with a memory of so many."""
    items = tuple(
        Session(
            id=f"D{s}",
            turns=tuple(
                Turn(id=f"D{s}:{t}", speaker="Ann", text="w " * (said if s == t == 1 else 0) or " ")
                for t in range(1, 10)
            ),
        )
        for s in range(1, sessions + 1)
    )
    memory = FactMemory().apply([Edit("INSERT", content="w " * kept)])
    runs = tuple(SessionRun(item, FactMemory(), memory, ()) for item in items)
    return Rollout(History(id="h", items=items), runs, memory)


@pytest.mark.vectors("memory_r2", "advantage-*")
def test_advantages_are_the_released_ones(
    case: dict[str, Any], agrees: Callable[..., None]
) -> None:
    kind = case["id"].split("-")[1]
    rewards, names = case["input"]["rewards"], case["input"]["groups"]
    found = [0.0] * len(rewards)
    for name in dict.fromkeys(names):
        own = [n for n, each in enumerate(names) if each == name]
        settings = Reinforcement(scale_rewards=kind != "centred", leave_one_out=kind == "rloo")
        shares = advantages([rewards[n] for n in own], settings)
        for n, share in zip(own, shares, strict=True):
            found[n] = share
    agrees(found, within=CLOSE)


@pytest.mark.vectors("memory_r2", "turn-return-*")
def test_the_reward_of_every_turn_of_a_session(
    case: dict[str, Any], agrees: Callable[..., None]
) -> None:
    given = case["input"]
    role, turns = object(), given["turns"]
    calls = tuple(PredictorCall(role, {}, completions=[Completion((), "")]) for _ in range(turns))
    item = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ann", text="said"),))
    taken = Rollout(
        History(id="h", items=(item,)),
        (SessionRun(item, FactMemory(), FactMemory(), calls),),
        FactMemory(),
    )
    worth = float(sum(given["turn_rewards"][:turns]))
    rollouts = [RewardedRollout(taken, [value], 0.0) for value in (worth, 0.0)]
    groups = global_groups("h", rollouts, {"manage": role}, RewardSettings())
    found = [group.members[0].reward for group in groups]
    agrees(found + [0.0] * (len(given["turn_rewards"]) - turns))


@pytest.mark.vectors("memory_r2", "dia-*")
def test_turn_ids_of_evidence_are_the_released_ones(
    case: dict[str, Any], agrees: Callable[..., None]
) -> None:
    said = case["input"]["dia_id"]
    found = [
        [int(n) for n in id[1:].split(":")]
        for id in evidence_ids([said] if isinstance(said, str) else [])
    ]
    agrees(found or [[None, None]], [case["expected"]["reward"]])


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., Locomo]:
    """A conversation of thirty sessions of nine turns with questions on some evidence, as LoCoMo's reader reads it."""

    def make(*evidence: Any, category: int = 1) -> Locomo:
        talk: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Bob"}
        for s in range(1, 31):
            talk[f"session_{s}_date_time"] = "1:00 pm on 8 May, 2023"
            talk[f"session_{s}"] = [
                {"dia_id": f"D{s}:{t}", "speaker": "Ann", "text": "said"} for t in range(1, 10)
            ]
        rows = [
            {"question": f"{n}?", "answer": "x", "evidence": e, "category": category}
            for n, e in enumerate(evidence)
        ]
        path = tmp_path / "made.json"
        path.write_text(json.dumps([{"sample_id": "c", "conversation": talk, "qa": rows}]))
        return Locomo.load(path)

    return make


def _first_asked(made: Locomo) -> int | None:
    """After how many sessions the question can be asked; None where only the end of the conversation brings it."""
    (example,) = made.examples
    history = example.history
    found = next(n for n in range(1, len(history) + 1) if questions_after([example], history, n))
    return found if made.in_headline(example) and example.evidence else None


@pytest.mark.vectors("memory_r2", "latest-session-*")
def test_the_session_that_a_question_waits_for(
    case: dict[str, Any], agrees: Any, asked: Any
) -> None:
    agrees(_first_asked(asked(case["input"]["evidence"])))


@pytest.mark.vectors("memory_r2", "evidence-per-session-*")
def test_the_evidence_of_each_session(
    case: dict[str, Any], agrees: Callable[..., None], asked: Any
) -> None:
    given = case["input"]
    made = asked(*given["evidence_by_question"])
    history = made.examples[0].history
    whole = QuestionScores(tuple(made.examples), (0.0,) * len(made.examples))
    found = {}
    for item in history.items[: given["sessions"]]:
        own = [turn.id for turn in item.turns]
        touching = whole.about_session(own).examples
        found[item.id[1:]] = [
            id for example in touching for id in example.evidence_ids if id in own
        ]
    agrees(found)


@pytest.mark.vectors("memory_r2", "question-time-*")
def test_when_a_question_is_asked(
    case: dict[str, Any], agrees: Callable[..., None], asked: Any
) -> None:
    given = case["input"]
    first = _first_asked(asked(given["evidence"], category=given["category"]))
    now = given["session_last"][0]
    agrees(None if first is None or first > now else "current" if first == now else "distant")


@pytest.mark.vectors("memory_r2", "split")
def test_the_split_is_the_released_one(
    case: dict[str, Any], agrees: Callable[..., None], asked: Any
) -> None:
    made = asked(["D1:1"])
    ids = [id for part in ("train", "validation", "test") for id in case["expected"][part]]
    whole = Locomo(made.examples, made.source, conversations=ids)
    assert whole.fixed_split() is not None
    train, validation, test = whole.fixed_split() or ((), (), ())
    (example,) = made.examples
    (fifth,) = asked(["D1:1"], category=5).examples
    ours = {
        "train": sorted(train),
        "validation": sorted(validation),
        "test": sorted(test),
        "skip_category_5": not made.in_headline(fifth),
        "cumulative_training_questions": bool(questions_after([example], example.history, 9)),
    }
    agrees(
        ours, {key: sorted(v) if isinstance(v, list) else v for key, v in case["expected"].items()}
    )


@pytest.mark.vectors("memory_r2", "policy-loss-*")
def test_the_policy_loss_is_the_released_one(
    case: dict[str, Any], agrees: Callable[..., None]
) -> None:
    torch = pytest.importorskip("torch", reason="local models need the local extra")
    from mempiler.engines.local.loss import grpo_loss

    rows, settings = policy_rows(case["input"])
    width = max(len(old) for old, _, _ in rows)
    old, new = (
        torch.tensor([row[n] + [0.0] * (width - len(row[n])) for row in rows]) for n in (0, 1)
    )
    mask = torch.tensor([[1.0] * len(old) + [0.0] * (width - len(old)) for old, _, _ in rows])
    gains = torch.tensor([float(gain) for _, _, gain in rows])
    loss = grpo_loss(new, old, gains, mask, settings=Reinforcement(**settings))
    # The other numbers of the released function are for its logs.
    agrees(float(loss), case["expected"]["loss"], within=CLOSE)


@pytest.fixture
def collected(scripted: Any, fact_replies: Any, make_history: Any) -> Callable[..., list[Batch]]:
    """Batches of LoGo-GRPO over histories with one question each; every answer is worth something else."""

    def make(sessions: int, people: int = 1, steps: int = 1, **settings: Any) -> list[Batch]:
        program = build("memory-r2", embedder=embedder(), adapter="chat")
        histories = [
            History(id=f"h{n}", items=make_history(sessions, turns=1).items) for n in range(people)
        ]
        worth = itertools.count()

        def question(history: History, n: int) -> list[dspy.Example]:
            example = dspy.Example(id="q", history=history, question="What?", evidence_ids=())
            return [example.with_inputs("history", "question", "evidence_ids")]

        given = TrainingSettings(
            histories=people, threads=1, session_reward="trajectory", **settings
        )
        collector = Collector(program, histories, question, lambda e, p: next(worth) % 7, given)
        lm = scripted(fact_replies)
        with dspy.context(adapter=single_attempt(program), trace=None):
            return [collector.collect(step, sessions, lm, lm) for step in range(1, steps + 1)]

    return make


@pytest.mark.vectors("memory_r2", "groups-global")
def test_global_groups_are_the_released_ones(
    case: dict[str, Any], agrees: Callable[..., None], collected: Any
) -> None:
    given = case["input"]
    (batch,) = collected(given["sessions"], objective="grpo", num_rollouts=given["rollouts"])
    agrees(
        _grouping(batch, "conversation, session, role"), {k: case["expected"][k] for k in _GROUPING}
    )


@pytest.mark.vectors("memory_r2", "groups-local")
def test_local_groups_are_the_released_ones(
    case: dict[str, Any], agrees: Callable[..., None], collected: Any
) -> None:
    given = case["input"]
    drawn = {"num_rollouts": 2, "local_n": given["inner_n"], "local_fraction": 1.0}
    (batch,) = collected(given["sessions_drawn"], objective="local", **drawn)
    # What they start from is held by tests/optimizers/logo_grpo/test_rollouts.py.
    agrees(_grouping(batch, "drawn session, role"), {k: case["expected"][k] for k in _GROUPING})


_GROUPING = ("groups", "members_each", "one_group_per")


def _grouping(batch: Batch, wanted: str) -> dict[str, Any]:
    numbers = batch.statistics
    made = int(
        numbers.groups_global
        + numbers.groups_local
        + numbers.no_variance_global
        + numbers.no_variance_local
    )
    sizes = {len(group.members) for group in batch.groups}
    keys = {
        (key.history, key.start, key.session, key.role)
        for key in (group.key for group in batch.groups)
    }
    each = len(keys) == len(batch.groups)
    return {
        "groups": made,
        "members_each": sizes.pop(),
        "one_group_per": wanted if each and not sizes else "other",
    }


@pytest.mark.vectors("memory_r2", "groups-draw")
def test_the_sessions_that_are_run_again(
    case: dict[str, Any], agrees: Callable[..., None], collected: Any
) -> None:
    fraction = case["input"]["inner_sampling_fraction"]
    assert TrainingSettings().local_fraction == fraction
    batches = collected(4, people=2, steps=6, objective="local", num_rollouts=2, local_n=2)
    drawn = [
        {
            (group.key.history, group.key.start)
            for group in batch.groups
            if group.key.kind == "local"
        }
        for batch in batches
    ]
    sessions = [{id: {t for of, t in each if of == id} for id, _ in each} for each in drawn]
    whole = all(len(set(map(frozenset, each.values()))) == 1 for each in sessions if each)
    assert 0 < sum(map(len, drawn)) < 6 * 2 * 4
    taken = max(
        Counter(
            (group.key.history, group.key.start, group.key.role) for group in batches[0].groups
        ).values(),
        default=1,
    )
    per = "session, for the whole batch" if whole else "session and conversation"
    agrees({"coin_per": per, "rollouts_taken_per_conversation": taken})
