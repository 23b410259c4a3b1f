"""Histories of behaviour and a scripted language model for practice on them."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dspy
import pytest


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
    batches = [Behavior.of(f"b{n}", actions[n : n + 10]) for n in range(0, records, 10)]
    first = [Profile(id="profile", turns=(Turn(id="profile:1", speaker="profile", text=profile),))] if profile else []
    return History(id=id, items=(*first, *batches))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """An empty store."""
    from mempiler import Store

    with Store(tmp_path / "memories.sqlite") as opened:
        yield opened


@pytest.fixture
def behavior_history() -> Callable[..., Any]:
    """Makes histories of behaviour; see `behavior`."""
    return behavior


class PracticeScript:
    """Replies to all prompts of PraMem: three proposals a round, all pass, the first of three records are adopted.

    `change` replaces the reply of a kind (the first output field): a dict, a text, or a function (text, n) of these.
    """

    def __init__(self, **change: Any) -> None:
        self.change = change

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any] | str:
        changed = self.change.get(kind)
        if changed is not None:
            return changed(text, n) if callable(changed) else changed
        return getattr(self, f"_{kind}")(text)

    def _useful_patterns(self, text: str) -> dict[str, Any]:
        return {"useful_patterns": ["p"], "useful_alerts": [], "reasoning": "hm", "predicted_action": "watched"}

    def _predicted_action(self, text: str) -> dict[str, Any]:
        return {"predicted_action": "watched"}

    def _tasks(self, text: str) -> dict[str, Any]:
        return {"tasks": [{"task": "watch", "verdict": "Incorrect", "analysis": "-"}], **self._proposals(text)}

    def _proposals(self, text: str) -> dict[str, Any]:
        target = section(text, "practised_record").split("]")[0].strip("[")
        return {
            "proposals": [
                {"action": action, "trigger": "t", "content": f"{what} of {target}"}
                for action, what in (("Add Pattern", "one"), ("add alert", "two"), ("add_pattern", "three"))
            ]
        }

    def _plans(self, text: str) -> dict[str, Any]:
        return {"plans": [{"direction": "all reversed", "details": "likes become reports"}]}

    def _groundedness(self, text: str) -> dict[str, Any]:
        return {"groundedness": [{"proposal": id, "sensitive": True} for id in proposal_ids(text)]}

    def _virtual_scenes(self, text: str) -> dict[str, Any]:
        return {"virtual_scenes": [f"video; virtual {n}" for n in range(1, 8)]}

    def _generality(self, text: str) -> dict[str, Any]:
        return {"generality": [{"proposal": id, "general": True} for id in proposal_ids(text)]}

    def _decisions(self, text: str) -> dict[str, Any]:
        ids = pool_ids(text)
        return {
            "decisions": "-",
            "changes": [{"action": "add pattern", "text": f"agreed {ids[0]}", "proposal_ids": ids}],
        }

    def _answer(self, text: str) -> dict[str, Any]:
        return {"answer": "Yes"}

    def _relevant_patterns(self, text: str) -> dict[str, Any]:
        return {"relevant_patterns": [], "relevant_alerts": [], "reasoning": "-", "answer": "Yes"}


def section(text: str, field: str) -> str:
    """The value of an input field in a prompt."""
    return text.rsplit(f"[[ ## {field} ## ]]", 1)[1].split("[[ ##")[0].strip()


def proposal_ids(text: str) -> list[str]:
    """Ids of the proposals that a review is shown."""
    return re.findall(r'"proposal": "(r\d+)"', section(text, "proposals"))


def pool_ids(text: str) -> list[str]:
    """Ids of the first proposals of the first three records that an adjustment is shown."""
    found = re.findall(r'"proposal": "(p-\d+)",\s*"record": "(\w+)"', section(text, "proposal_pool"))
    firsts = {record: id for id, record in reversed(found)}
    return [id for id, record in found if firsts[record] == id][:3]


@pytest.fixture
def practice_script() -> type[PracticeScript]:
    """Makes scripts of PraMem's model: `practice_script(plans="no")`."""
    return PracticeScript


class Written:
    """What came of writing a history: the memory, what failed, and what the model was asked."""

    def __init__(self, node: Any, engine: Any) -> None:
        self.memory, self.calls, self.prompts = node.memory, engine.calls, engine.prompts
        self.failures = [failure for part in node.chain() for failure in part.failures]

    def texts(self, *kinds: str) -> list[str]:
        """Prompts of some kinds."""
        return [text for kind, text in self.prompts if kind in kinds]

    def shown(self, kind: str, field: str) -> list[str]:
        """A field of all prompts of a kind."""
        return [given(text, field) for text in self.texts(kind)]


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
        return written(program, behavior(records), PracticeScript(**change or {}))

    return run


@pytest.fixture
def prompt_section() -> Callable[[str, str], str]:
    """Cuts an input field out of a prompt."""
    return section


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


@pytest.fixture
def pal_history() -> Callable[..., Any]:
    """Makes histories of logs and dialogues; see `pal`."""
    return pal


class PalScript:
    """Replies to all prompts of H2Memory, each made from the prompt alone, so that order does not matter.

    The second log of a session is caused by the first. Situations of odd sessions are about health, of even ones about
    work and family. A dialogue has a topic on sleep and one on food. Summaries hold what they were made from.
    `change` replaces the reply of a kind (the first output field): a dict, a text, or a function (text, n) of these.
    """

    def __init__(self, **change: Any) -> None:
        self.change = change

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any] | str:
        changed = self.change.get(kind)
        if changed is not None:
            return changed(text, n) if callable(changed) else changed
        made = getattr(self, f"_{kind}", None)
        return made(text) if made else {kind: "x", **({"answer": "x"} if kind == "reasoning" else {})}

    def _links(self, text: str) -> dict[str, Any]:
        first = given(text, "first_log").split(":")[0]
        return {"links": [{"log_id": f"{first}:2", "caused_by": f"{first}:1", "follows": None}]}

    def _found_situation(self, text: str) -> dict[str, Any]:
        ids = re.findall(r"^\[(L(\d+):\d+)\]", given(text, "linked_logs"), re.MULTILINE)
        aspects = "Health" if int(ids[0][1]) % 2 else ["family", "WORK"]
        return {"found_situation": {"situation": f"situation of {' '.join(id for id, _ in ids)}", "aspects": aspects}}

    def _outlines(self, text: str) -> dict[str, Any]:
        s = (re.findall(r"^\[D(\d+):", given(text, "conversation"), re.MULTILINE) or ["0"])[0]
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

    def _detailed_need(self, text: str) -> dict[str, Any]:
        background, situations = given(text, "overall_background"), given(text, "recent_situations")
        return {"detailed_need": f"{given(text, 'stated_need')} <{' / '.join([background, situations])}>"}

    def _updating_aspects(self, text: str) -> dict[str, Any]:
        found = re.findall(r"situation of L(\d+):1", given(text, "situations_since"))[0]
        aspect = "health" if int(found) % 2 else "Work"
        before = re.findall(rf"^{aspect.lower()}: ?(.*)$", given(text, "background_before"), re.MULTILINE)[0]
        summary = {"aspect": aspect, "summary": f"{before}+{found}" if before else f"known {found}"}
        return {"updating_aspects": [aspect], "updating_content": [summary]}

    def _general_need(self, text: str) -> dict[str, Any]:
        return {"general_need": f"type({len(json.loads(given(text, 'specific_needs')))})"}

    def _general_preference(self, text: str) -> dict[str, Any]:
        liked = json.loads(given(text, "preference_experiences"))
        return {"general_preference": f"principle({', '.join(liked)})"}

    def _type_verdict(self, text: str) -> dict[str, Any]:
        return {"type_verdict": {"adjust": "No"}}

    def _principle_verdict(self, text: str) -> dict[str, Any]:
        liked = json.loads(given(text, "experiences_since"))
        revised = f"{given(text, 'principle_so_far')} & {', '.join(liked)}"
        return {"principle_verdict": {"adjust": "Yes", "revised": revised}}


def given(text: str, field: str) -> str:
    """The value of any input field in a prompt, the last one too."""
    return section(text, field).split("\n\nRespond with")[0]


@pytest.fixture
def pal_given() -> Callable[[str, str], str]:
    """Cuts an input field out of a prompt, the last one too."""
    return given


@pytest.fixture
def pal_script() -> type[PalScript]:
    """Makes scripts of H2Memory's model: `pal_script(outlines="no")`."""
    return PalScript


@pytest.fixture
def lived(written: Any) -> Callable[..., Written]:
    """Writes under H2Memory: `lived({"outlines": "no"}, pal_history(2), clusters=1)`; the first changes the script."""
    from mempiler.engines.embedders import embedder
    from mempiler.programs.catalog import build

    def run(change: dict[str, Any] | None = None, history: Any = None, sessions: int = 3, **settings: Any) -> Written:
        program = build("h2memory", embedder=embedder(), **settings)
        return written(program, pal(sessions) if history is None else history, PalScript(**change or {}))

    return run
