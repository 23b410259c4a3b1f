"""Data that is made: MemoryQuest from profiles, complete or not at all; memory-env, with a perfect writer."""

import json
import random
import re
from collections import Counter
from typing import Any

import dspy
import numpy as np
import pytest
from dspy.lm15 import InvalidRequestError
from mempiler import Context, Hit, Query, build
from mempiler.data.memory_env import NOTHING, VALUES, Conversation, MemoryEnv
from mempiler.data.memoryquest import MemoryQuest
from mempiler.data.synthesis.memory_teacher import teach_facts, teach_operations
from mempiler.data.synthesis.memoryquest.make import make_memoryquest
from mempiler.data.synthesis.memoryquest.profiles import read_profiles
from mempiler.data.synthesis.palset.make import make_palset
from mempiler.data.synthesis.palset.setting import Setting
from mempiler.data.synthesis.runner import Runner
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.errors import BudgetError, DataError, UserError
from mempiler.optimizers.demonstrations import SEED_OFFSET, demonstrate
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.programs.tasks.lookup import MemoryLookup
from mempiler.programs.writing import write_items
from mempiler.runs.run_store import RunStore
from mempiler.signatures.memory_r2 import Fact, NewFact, StoredMemory

from .conftest import DOMAINS, field
from .conftest import good as good_palset


def draft(n=0, near=0.1, **changes):
    """A request; `near` is the cosine that the test's embedder gives to it and each of its references."""
    references = [
        {"text": f"Bought lantern{n}{word} for grandmother", "date": f"2024-0{month}-10"}
        for month, word in enumerate(("red", "green", "blue"), start=2)
    ]
    query = {
        "query": f"Plan party number{n} near={near}",
        "date": "2024-06-01",
        "reasoning": "because",
    }
    return {**query, "references": references, **changes}


def events(**changes):
    days = ["2024-02-01", "2024-02-10", "2024-03-10", "2024-03-20", "2024-04-10"]
    told = [[], ["r1"], ["r2"], [], ["r3"]]
    plan = [
        {"date": day, "domains": ["Books"], "summary": f"Talks on {day}", "references": ids}
        for day, ids in zip(days, told, strict=True)
    ]
    for name, value in changes.items():
        plan[int(name[1:])].update(value)
    return plan


def turns(fact, count=6):
    said = [f"Hello there {n}" for n in range(count)]
    said[2] = f"By the way, {fact}"
    return [{"speaker": ("user", "assistant")[n % 2], "text": text} for n, text in enumerate(said)]


def good(kind, text, n):
    """A model that does everything right: two requests a round."""
    if kind == "queries":
        start = len(re.findall(r"number\d+", str(field(text, "earlier_queries"))))
        return {"queries": [draft(start), draft(start + 1)]}
    if kind == "events":
        return {
            "events": [
                one | {"summary": f"{one['summary']}: {field(text, 'query')}"} for one in events()
            ]
        }
    return {"turns": turns(field(text, "facts"))}


class Near:
    """Cosines as the requests themselves say: `near=0.4`."""

    def __init__(self, name="test"):
        self.name = name

    def embed(self, texts):
        value = float(re.search(r"near=([\d.]+)", texts[0]).group(1))
        others = [[value, np.sqrt(1 - value**2)]] * (len(texts) - 1)
        return np.array([[1.0, 0.0], *others], dtype=np.float32)


@pytest.fixture
def made(tmp_path, scripted, profiles):
    """Makes the data set for the first user; gives the content of its file (or None), the report, and the calls."""

    def run(reply, out="quest", attempts=3, threads=2):
        lm, runner = scripted(reply), Runner(attempts, threads)
        with dspy.context(lm=lm):
            files = make_memoryquest(
                read_profiles(profiles)[:1], tmp_path / out, runner, Near(), lambda line: None
            )
        return [json.loads(path.read_text()) for path in files], runner.report, lm.engine.calls

    return run


def test_profiles_are_read_in_the_order_of_their_numbers(profiles):
    found = read_profiles(profiles)
    assert [profile.user_id for profile in found] == ["user2", "user10"]
    assert found[0].demographics == {"age": "2 years old"}
    assert found[0].domain_summaries == {**DOMAINS, "Music": "Genre: jazz, soul; Format: vinyl"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is \\[\\], expected an object"),
        ('{"demographics": {"user_id": "u/1"}}', "cannot name a file"),
        ('{"demographics": {"user_id": "u1"}}', "nothing"),
        ("{", "not valid JSON"),
        (None, "none with a user's profile.json"),
    ],
)
def test_a_broken_profile_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "user0_profile.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_profiles(tmp_path)


def test_the_benchmark_reads_a_user_file_of_the_form_that_is_promised(made, tmp_path):
    [user], report, calls = made(good)
    assert user["user_id"] == "user2"
    assert report.rejections == []
    assert [session["session_id"] for session in user["sessions"]] == [
        f"s{n}" for n in range(1, 31)
    ]
    dates = [session["date"] for session in user["sessions"]]
    assert dates == sorted(dates)
    assert calls == {"queries": 3, "events": 6, "turns": 30}
    loaded = MemoryQuest.load(tmp_path / "quest")
    assert [example.question for example in loaded.examples] == [
        query["query"] for query in user["queries"]
    ]
    assert len(loaded.examples) == 6
    assert all(example.evidence_ids for example in loaded.examples)


def test_requests_over_the_threshold_go_and_the_lowest_fifteen_come_first(made):
    nears = [(29 - n) / 100 if n < 20 else 0.31 if n == 20 else 0.9 for n in range(24)]

    def reply(kind, text, n):
        drafts = [draft(m, nears[m]) for m in range(8 * n - 8, 8 * n)] if kind == "queries" else []
        return {"queries": drafts} if drafts else good(kind, text, n)

    [user], report, _ = made(reply)
    kept = [float(query["query"].split("near=")[1]) for query in user["queries"]]
    assert len(kept) == 15
    assert kept == sorted(kept)
    gone = Counter(one.problems[0] for one in report.rejections if one.step == "gate")
    assert gone == {
        "mean cosine 0.310 is over 0.3": 1,
        "mean cosine 0.900 is over 0.3": 3,
        "15 others are lower": 5,
    }


def test_a_request_without_all_its_chats_is_left_out_whole_and_a_user_without_requests_gets_no_file(
    made,
):
    def reply(kind, text, n):
        if kind == "turns" and "lantern0blue" in text:
            return {"turns": turns("nothing of that kind")}
        return good(kind, text, n)

    [user], report, _ = made(reply)
    assert len(user["queries"]) == 5
    assert len(user["sessions"]) == 25
    assert [one.problems for one in report.rejections if one.step == "query"] == [
        ("left out: no dialogue for 2024-04-10",)
    ]
    assert "lantern0" not in json.dumps(user)
    files, report, _ = made(lambda kind, text, n: {"queries": []}, "none")
    assert files == []
    assert [one.step for one in report.rejections if one.outcome == "given up"] == [
        "queries",
        "user",
    ]


STEPS = {"queries": "queries", "events": "timeline", "turns": "dialogue"}
RULES = {
    "queries": [
        ([draft(date="June 1st")], "'June 1st' is no day"),
        ([draft(date="2024-04-10")], "2024-04-10 is not older"),
        ([draft(references=draft()["references"][:2])], "2 references"),
        ([draft(references=[draft()["references"][0]] * 3)], "say the same"),
        ([draft(), draft()], "exists already"),
    ],
    "timeline": [
        (events()[:4], "4 events; plan 5 to 10"),
        (events(e3={"date": "2024-02-20"}), "not in ascending order"),
        (events(e0={"date": "2023-11-01"}), "not shortly"),
        (events(e4={"date": "2024-06-01"}), "not before the request"),
        (events(e1={"references": []}), "reference r1 is told in 0 events; tell it in exactly one"),
        (events(e0={"references": ["r9"]}), "no reference 'r9'"),
        (events(e1={"references": []}, e0={"references": ["r1"]}), "r1 belongs to 2024-02-10"),
        (events(e0={"domains": ["Chess"]}), "domains ['Chess']"),
        (events(e0={"summary": " "}), "no summary"),
    ],
    "dialogue": [
        (turns("x", 4), "4 turns; write 5 to 30"),
        (turns("x")[1:], "the user has to begin"),
        (turns("x")[:3] + turns("x")[2:], "alternate"),
        ([*turns("x")[:5], {"speaker": "assistant", "text": ""}], "a turn is empty"),
        (turns("x"), None),
        (turns("I like lakes"), "does not tell this: Bought lantern0red"),
        (turns("lantern0red, which I bought, is a present for my grandmother"), None),
    ],
}
"""By step: answers in the order in which they are given, and what of each is told; None where nothing is wrong."""


def test_the_model_is_asked_again_with_the_rule_that_it_broke(made):
    waiting, seen = {kind: list(RULES[step]) for kind, step in STEPS.items()}, []

    def reply(kind, text, n):
        seen.append(field(text, "complaints"))
        return {kind: waiting[kind].pop(0)[0]} if waiting[kind] else good(kind, text, n)

    _, report, _ = made(reply, attempts=12, threads=1)
    for step, rules in RULES.items():
        found = [one.problems for one in report.rejections if one.step == step]
        wanted = [problem for _, problem in rules if problem]
        assert len(found) == len(wanted), found
        assert all(
            any(part in text for text in told) for part, told in zip(wanted, found, strict=True)
        ), found
    assert report.count("queries", "left out") == 1
    assert any(
        "- reference r1 is told in 0 events; tell it in exactly one" in told for told in seen
    )


def test_a_request_that_the_endpoint_refuses_is_reported_and_asked_about_again(made):
    def reply(kind, text, n):
        if kind == "events" and n == 1:
            raise InvalidRequestError("flagged by the content filter")
        return good(kind, text, n)

    [user], report, calls = made(reply, threads=1)
    assert len(user["queries"]) == 6
    [rejection] = report.rejections
    assert rejection.step == "timeline"
    assert rejection.outcome == "retried"
    assert "flagged by the content filter" in rejection.problems[0]
    assert calls["events"] == 6 + 1


def test_the_offline_embedder_is_refused(tmp_path, profiles):
    with pytest.raises(UserError, match="compares spelling"):
        make_memoryquest(read_profiles(profiles), tmp_path, Runner(), Near("offline"))


def quest(profiles, folder, runner):
    return make_memoryquest(read_profiles(profiles)[:1], folder, runner, Near())


def palset(profiles, folder, runner):
    return make_palset(1, folder, Setting("en", 2, 0, runner, 0), on_progress=lambda line: None)


@pytest.mark.parametrize(("make", "reply"), [(quest, good), (palset, good_palset)])
def test_a_spent_budget_keeps_what_was_answered(profiles, scripted, tmp_path, make, reply):
    store, asked = RunStore(tmp_path / "answers.sqlite"), []

    def made(**limits):
        guard, runner = BudgetGuard(Limits(**limits)), Runner(threads=2)
        lm = scripted(
            lambda *call: asked.append(call) or reply(*call),
            guard=guard,
            answers=store.answers,
            cache=True,
        )
        with dspy.context(lm=lm):
            return make(profiles, tmp_path / "out", runner), runner.report

    with pytest.raises(BudgetError):
        made(max_calls=12)
    assert len(asked) == 12
    files, report = made()
    assert json.loads(files[0].read_text())
    assert len(asked) == sum(report.accepted.values()) > 12


@pytest.fixture(scope="module")
def env() -> MemoryEnv:
    return MemoryEnv.load(users=20, sessions=8)


def replayed(talk: Conversation, sessions: int) -> dict[str, str]:
    """Questions and answers after some sessions, read from what was said."""
    facts: dict[str, str] = {}
    for item in talk.history.items[:sessions]:
        for turn in item.turns:
            words = turn.text.split()
            key = next((word for word in words if word in VALUES), None)
            if key:
                value = next((word for word in words if word in VALUES[key]), NOTHING)
                facts[f"What is {turn.speaker}'s {key}?"] = value
    return facts


@pytest.mark.parametrize("sessions", [1, 3, 8])
def test_answers_are_what_was_said_last(env: MemoryEnv, sessions: int) -> None:
    for talk in env.talks.values():
        asked = env.questions_after(talk.history, sessions)
        assert {ask.question: ask.answer for ask in asked} == replayed(talk, sessions)
        assert all(len(ask.history) == sessions for ask in asked)


def test_a_kind_tells_what_was_done_last_and_evidence_ends_with_the_turn_that_decides(
    env: MemoryEnv,
) -> None:
    assert {example.category for example in env.examples} == {
        "state",
        "change",
        "restate",
        "retract",
    }
    for example in env.examples:
        turns = [example.history.turns[id][0] for id in example.evidence]
        assert all(turn.speaker in example.question for turn in turns)
        assert (example.answer == NOTHING) == (example.category == "retract")
        assert example.answer in (*turns[-1].text.split(), NOTHING)


def test_the_same_seed_gives_the_same_users_and_another_seed_others(env: MemoryEnv) -> None:
    assert MemoryEnv.load(users="20", sessions="8").source == env.source
    assert env.source.sha256 == "ff3774bdf5cc8f3a485ab584edb0422e9ae0b8b3cc7e7ad08fc16dd4740cf114"
    assert MemoryEnv.load(users=20, sessions=8, seed=1).source.sha256 != env.source.sha256


FACT = NewFact(speaker="Ada", turn_id="D2:1", fact="Ada pet cat", related_memory_ids=["m1", "m2"])
OTHER = StoredMemory(memory_id="m2", speaker="Ada", content="Ada city Rome")


@pytest.mark.parametrize(
    ("known", "fact", "op", "target"),
    [
        (None, "Ada pet cat", "INSERT", None),
        ("Ada pet dog", "Ada pet cat", "UPDATE", "m1"),
        ("Ada pet cat", "Ada pet cat", "NONE", None),
        ("Ada pet dog", "Ada pet none", "DELETE", "m1"),
        (None, "Ada pet none", "NONE", None),
    ],
)
def test_good_teacher_does_what_the_fact_calls_for(
    known: str | None, fact: str, op: str, target: str | None
) -> None:
    entry = [StoredMemory(memory_id="m1", speaker="", content=known)] if known else []
    said = FACT.model_copy(update={"fact": fact})
    [operation] = teach_operations([OTHER, *entry], [said], random.Random(0))
    assert operation.op == op
    assert operation.memory_id == target


def test_poor_teacher_errs_as_often_as_asked() -> None:
    entry, rng = (
        StoredMemory(memory_id="m1", speaker="Ada", content="Ada pet dog"),
        random.Random(1),
    )
    ops = [teach_operations([entry, OTHER], [FACT], rng, {"change": 0.5})[0].op for _ in range(400)]
    assert set(ops) == {"UPDATE", "INSERT"}
    assert ops.count("INSERT") / 400 == pytest.approx(0.5, abs=0.06)


def test_teacher_hears_every_fact_and_no_chatter() -> None:
    for number in range(20):
        talk = Conversation.make(3, number, 8)
        dialogue = "\n".join(turn.line() for item in talk.history.items for turn in item.turns)
        heard = [
            (fact.turn_id, fact.fact.split()[-1])
            for fact in teach_facts(dialogue, random.Random(0))
        ]
        assert heard == [(event.turn_id, event.value or NOTHING) for event in talk.events]


SETTINGS: dict[str, Any] = dict(MemoryR2.preset("memory-env"))


def written(env: MemoryEnv, user: str) -> tuple[FactMemory, list[bool]]:
    """A user's memory by a perfect writer, and whether each entry to be changed was among the related ones."""
    method, memory, found = MemoryR2(MemoryR2Settings(**SETTINGS)), FactMemory(), []
    for event in env.talks[user].events:
        about = f"{event.speaker} {event.key}"
        fact = Fact(
            speaker=event.speaker, turn_id=event.turn_id, fact=f"{about} {event.value or 'none'}"
        )
        [related] = method.writer.relate(memory, [fact])
        old = next((entry.id for entry in memory.facts if entry.content.startswith(about)), None)
        if old:
            found.append(old in related)
        op = "DELETE" if event.value is None else "UPDATE" if old else "INSERT"
        memory = memory.apply([Edit(op, old, event.speaker, fact.fact, (event.turn_id,))], related)
    return memory, found


def test_a_perfect_writer_meets_the_entry_to_change_and_its_memory_answers_every_question(
    env: MemoryEnv,
) -> None:
    program = build("memory-r2", env.task, embedder(), adapter="compact", **SETTINGS)
    for talk in list(env.talks.values())[:6]:
        memory, related = written(env, talk.history.id)
        assert related
        assert all(related)
        for example in talk.questions():
            query = Query(text=example.question, speakers=example.history.speakers)
            answer = program.task(context=program.method.reader.recall(memory, query), query=query)
            assert env.score(example, answer).value == 1


@pytest.mark.parametrize(
    ("entries", "answer"),
    [
        ([("m12", "Ada pet cat"), ("m9", "Ada pet dog")], "dog"),
        ([("m1", "Ada city Rome"), ("m2", "Ben pet cat")], "none"),
        ([("m1", "Ada's pet is a dog.")], "dog"),
    ],
)
def test_the_oldest_matching_entry_answers(entries: list[tuple[str, str]], answer: str) -> None:
    context = Context(hits=tuple(Hit(id=id, text=text) for id, text in entries))
    assert MemoryLookup()(context=context, query=Query(text="What is Ada's pet?")).answer == answer


def test_demonstrations_are_the_prompts_that_a_model_is_asked(scripted: Any) -> None:
    """A model that answers by the demonstrations knows every prompt it meets when the method writes the same user."""
    method = MemoryR2(MemoryR2Settings(**SETTINGS))
    shown = demonstrate(method, CompactAdapter(), 1, seed=0)
    known = {messages[-1]["content"]: answer for messages, answer in shown}
    lm = scripted(lambda kind, asked, n: next(known[prompt] for prompt in known if prompt in asked))
    memory = method.writer.Memory()
    with dspy.context(lm=lm, adapter=CompactAdapter()):
        for item in Conversation.make(SEED_OFFSET, 0, 8).history.items:
            memory = write_items(method.writer, memory, [item])
    assert memory.counts["inserted"] > 1
