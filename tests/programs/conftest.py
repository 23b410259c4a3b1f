"""Histories of behaviour and a scripted language model for practice on them."""

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import dspy
import pytest
from hypothesis import strategies as st


def behavior(records: int = 30, profile: str = "Ann, 34, nurse", id: str = "ann") -> Any:
    """A history of a profile and behaviour records a1, a2, ... in batches of ten, each with words of its own."""
    from mempiler import History
    from mempiler.records import Action, Behavior, Profile, Turn

    start = datetime(2024, 1, 1, 8)
    actions = [
        Action(
            id=f"a{n}",
            time=start + timedelta(hours=n),
            scene="video",
            situation=f"situation-{n}-x",
            action=f"action-{n}-x",
        )
        for n in range(1, records + 1)
    ]
    batches = [Behavior.from_actions(f"b{n}", actions[n : n + 10]) for n in range(0, records, 10)]
    first = [Profile(id="profile", turns=(Turn(id="profile:1", speaker="profile", text=profile),))] if profile else []
    return History(id=id, items=(*first, *batches))


def graph_paths() -> Any:
    """A strategy: what a unit of evidence is filed under in RGMem's graph, broken paths too."""
    from mempiler.programs.rgmem.graph import GraphPath
    from mempiler.programs.rgmem.memory import BASES

    concepts = st.lists(st.sampled_from(["Alpha", "Beta", "Gamma", "Delta"]), max_size=4).map(tuple)
    events = st.lists(st.sampled_from(["Run", "Swim", "Read"]), max_size=3).map(tuple)
    bases = st.sampled_from([*BASES[:2], "Elsewhere"])
    return st.lists(st.builds(GraphPath, bases, concepts, events, st.just(("label",))), max_size=3)


@pytest.fixture
def graph_replies() -> Callable[[str, str, int], dict[str, Any]]:
    """Scripted RGMem: session s is a unit about running, the odd ones about sleep too; theories name their input."""
    running = {"base": "Interests & Entertainment", "concepts": ["Sports"], "events": ["Running"]}
    sleep = {"base": "Health and Wellness", "concepts": [], "events": ["Sleep"]}

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        found = re.search(r"[\[ ]D(\d+):", text)
        session = int(found.group(1)) if found else 0
        if kind == "fact":
            drawn = [{"text": f"Ann ran in week {session}", "relevance": "High", "turn_ids": [f"D{session}:1"]}]
            drawn.append({"text": f"Bob saw week {session}", "relevance": "base", "turn_ids": [f"[D{session}:2]"]})
            return {"fact": f"Ann and Bob spoke of week {session}.", "conclusions": drawn}
        if kind == "entity_paths":
            return {"entity_paths": [running, *([sleep] if session % 2 else [])]}
        if kind == "edge_labels":
            ids = dict.fromkeys(re.findall(r'"segment_id": "(s\d+)"', text))
            return {"edge_labels": [{"segment_id": id, "label": f"{id} of week {session}"} for id in ids]}
        if kind == "fact_summary":
            return {"fact_summary": f"relation theory {n}", "inferred_traits": "- Inferred Trait/Interest: steady"}
        if kind == "general_facts":
            return {"general_facts": f"- concept theory {n}", "specific_facts": "On rain: rare"}
        if kind == "macro_law":
            return {"macro_law": f"law {n}", "core_traits": "* keen", "restrictions": "no heat"}
        if kind == "keywords":
            return {"keywords": [{"name": "Sports", "retrieve": ["summary", "inference"]}, {"name": "ran"}]}
        return {kind: "x"}

    return reply


Answers = dict[str, Callable[[str], dict[str, Any]]]


def script(answers: Answers) -> Callable[..., Callable[[str, str, int], Any]]:
    """Makes scripts of a model that answers by the first output field of a prompt, from the prompt alone.

    `script(answers)(plans="no")` replaces the answer of a kind: by a dict, a text, or a function (text, n) of these.
    """

    def made(**change: Any) -> Callable[[str, str, int], Any]:
        def reply(kind: str, text: str, n: int) -> Any:
            if kind not in change:
                plain = {kind: "x", **({"answer": "x"} if kind == "reasoning" else {})}
                return answers[kind](text) if kind in answers else plain
            return change[kind](text, n) if callable(change[kind]) else change[kind]

        return reply

    return made


def _proposals(text: str) -> dict[str, Any]:
    target = section(text, "practised_record").split("]")[0].strip("[")
    kinds = (("Add Pattern", "one"), ("add alert", "two"), ("add_pattern", "three"))
    drafts = [{"action": action, "trigger": "t", "content": f"{what} of {target}"} for action, what in kinds]
    return {"proposals": drafts}


def _reviewed(field: str, key: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {field: [{"proposal": id, key: True} for id in proposal_ids(text)]}


def _decisions(text: str) -> dict[str, Any]:
    ids = pool_ids(text)
    return {"decisions": "-", "changes": [{"action": "add pattern", "text": f"agreed {ids[0]}", "proposal_ids": ids}]}


ANSWER = {"answer": "Yes"}
PRACTICE: Answers = {
    "useful_patterns": lambda _: {
        "useful_patterns": ["p"],
        "useful_alerts": [],
        "reasoning": "hm",
        "predicted_action": "watched",
    },
    "predicted_action": lambda _: {"predicted_action": "watched"},
    "tasks": lambda text: {"tasks": [{"task": "watch", "verdict": "Incorrect", "analysis": "-"}], **_proposals(text)},
    "proposals": _proposals,
    "plans": lambda _: {"plans": [{"direction": "all reversed", "details": "likes become reports"}]},
    "groundedness": _reviewed("groundedness", "sensitive"),
    "virtual_scenes": lambda _: {"virtual_scenes": [f"video; virtual {n}" for n in range(1, 8)]},
    "generality": _reviewed("generality", "general"),
    "scene_choices": lambda text: {
        "scene_choices": [{"proposal": id, "situation": "several"} for id in proposal_ids(text)]
    },
    "decisions": _decisions,
    "answer": lambda _: ANSWER,
    "relevant_patterns": lambda _: {"relevant_patterns": [], "relevant_alerts": [], "reasoning": "-", **ANSWER},
}
"""PraMem's model: three proposals a round, all pass, the first of three records are adopted."""
practice_script = script(PRACTICE)


def section(text: str, field: str) -> str:
    """The value of an input field in a prompt."""
    value = text.rsplit(f"[[ ## {field} ## ]]", 1)[1].split("[[ ##")[0]
    return value.split("\n\nRespond with")[0].strip()


def proposal_ids(text: str) -> list[str]:
    """Ids of the proposals that a review is shown."""
    return re.findall(r'"proposal": "(r\d+)"', section(text, "proposals"))


def pool_ids(text: str) -> list[str]:
    """Ids of the first proposals of the first three records that an adjustment is shown."""
    found = re.findall(r'"proposal": "(p-\d+)",\s*"record": "(\w+)"', section(text, "proposal_pool"))
    firsts = {record: id for id, record in reversed(found)}
    return [id for id, record in found if firsts[record] == id][:3]


class Written:
    """What came of writing a history: the memory, what failed, and what the model was asked."""

    def __init__(self, node: Any, engine: Any) -> None:
        self.memory, self.calls, self.prompts = node.memory, engine.calls, engine.prompts
        self.failures = [failure for part in node.ancestors() for failure in part.failures]

    def texts(self, *kinds: str) -> list[str]:
        """Prompts of some kinds."""
        return [text for kind, text in self.prompts if kind in kinds]

    def shown(self, kind: str, field: str) -> list[str]:
        """A field of all prompts of a kind."""
        return [section(text, field) for text in self.texts(kind)]


@pytest.fixture
def written(scripted: Any) -> Callable[..., Written]:
    """Writes a history by a program under a scripted model: `written(program, history, reply)`."""

    def write(program: Any, history: Any, reply: Any) -> Written:
        lm = scripted(reply)
        with dspy.context(lm=lm):
            return Written(program.remember(history), lm.engine)

    return write


@pytest.fixture
def practised(written: Any) -> Callable[..., Written]:
    """Practises under PraMem: `practised({"plans": "no"}, records=30, rounds=5)`; the first changes the script."""
    from mempiler.programs.catalog import build

    def run(change: dict[str, Any] | None = None, records: int = 30, **settings: Any) -> Written:
        program = build("pramem", task="behavior-prediction", **{"rounds": 5, "min_history": 5, **settings})
        return written(program, behavior(records), practice_script(**change or {}))

    return run


def pal(sessions: int = 3, logs: int = 4, id: str = "pal", last: bool = True) -> Any:
    """Logs L1, L2, ... each before its dialogue D1, D2, ..., one pair a month; the last dialogue only if `last`."""
    from mempiler import History, Session, Turn
    from mempiler.records import Logs

    items: list[Any] = []
    for s in range(1, sessions + 1):
        start = datetime(2024, s, 3, 8)
        entries = [
            Turn(id=f"L{s}:{n}", speaker="log", text=f"searched thing-{s}-{n}", time=start + timedelta(hours=n))
            for n in range(1, logs + 1)
        ]
        turns = [
            Turn(id=f"D{s}:{n}", speaker=("assistant", "user")[n % 2], text=f"about matter-{s} at step {n}")
            for n in range(1, 5)
        ]
        items.append(Logs(id=f"L{s}", time=start, turns=tuple(entries)))
        items.append(Session(id=f"D{s}", time=start + timedelta(days=1), turns=tuple(turns)))
    return History(id=id, items=tuple(items if last else items[:-1]))


def _found_situation(text: str) -> dict[str, Any]:
    ids = re.findall(r"^\[(L(\d+):\d+)\]", section(text, "linked_logs"), re.MULTILINE)
    aspects = "Health" if int(ids[0][1]) % 2 else ["family", "WORK"]
    return {"found_situation": {"situation": f"situation of {' '.join(id for id, _ in ids)}", "aspects": aspects}}


def _outlines(text: str) -> dict[str, Any]:
    s = (re.findall(r"^\[D(\d+):", section(text, "conversation"), re.MULTILINE) or ["0"])[0]
    drafts = [
        {
            "turn_span": [f"D{s}:{2 * n + 1}", f"D{s}:{2 * n + 2}"],
            "requirement": f"{what} in month {s}",
            "solution_list": {"solution": f"plan {what} {s}", "user_feedback": "fine", "feedback_type": "Positive"},
            "preference": f"gentle {what} {s}",
        }
        for n, what in enumerate(("sleeping soundly", "cooking vegetables"))
    ]
    return {"outlines": drafts}


def _updating_aspects(text: str) -> dict[str, Any]:
    found = re.findall(r"situation of L(\d+):1", section(text, "situations_since"))[0]
    aspect = "health" if int(found) % 2 else "Work"
    before = re.findall(rf"^{aspect.lower()}: ?(.*)$", section(text, "background_before"), re.MULTILINE)[0]
    summary = {"aspect": aspect, "summary": f"{before}+{found}" if before else f"known {found}"}
    return {"updating_aspects": [aspect], "updating_content": [summary]}


def _links(text: str) -> dict[str, Any]:
    first = section(text, "first_log").split(":")[0]
    return {"links": [{"log_id": f"{first}:2", "caused_by": f"{first}:1", "follows": None}]}


def _detailed_need(text: str) -> dict[str, Any]:
    known = " / ".join(section(text, name) for name in ("overall_background", "recent_situations"))
    return {"detailed_need": f"{section(text, 'stated_need')} <{known}>"}


def _principle_verdict(text: str) -> dict[str, Any]:
    revised = f"{section(text, 'principle_so_far')} & {', '.join(json.loads(section(text, 'experiences_since')))}"
    return {"principle_verdict": {"adjust": "Yes", "revised": revised}}


PAL: Answers = {
    "links": _links,
    "found_situation": _found_situation,
    "outlines": _outlines,
    "detailed_need": _detailed_need,
    "updating_aspects": _updating_aspects,
    "general_need": lambda text: {"general_need": f"type({len(json.loads(section(text, 'specific_needs')))})"},
    "general_preference": lambda text: {
        "general_preference": f"principle({', '.join(json.loads(section(text, 'preference_experiences')))})"
    },
    "type_verdict": lambda _: {"type_verdict": {"adjust": "No"}},
    "principle_verdict": _principle_verdict,
}
"""H2Memory's model: each answer is made from the prompt alone, so that order does not matter.

The second log of a session is caused by the first. Situations of odd sessions are about health, of even ones about work
and family. A dialogue has a topic on sleep and one on food. Summaries hold what they were made from.
"""
pal_script = script(PAL)


@pytest.fixture
def lived(written: Any) -> Callable[..., Written]:
    """Writes under H2Memory: `lived({"outlines": "no"}, pal_history(2), clusters=1)`; the first changes the script."""
    from mempiler.engines.embedders import embedder
    from mempiler.programs.catalog import build

    def run(change: dict[str, Any] | None = None, history: Any = None, sessions: int = 3, **settings: Any) -> Written:
        program = build("h2memory", embedder=embedder(), **settings)
        return written(program, pal(sessions) if history is None else history, pal_script(**change or {}))

    return run
