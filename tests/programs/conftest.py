"""Histories of users, and scripted language models for the methods that call a model many times.

A method is a way to write and to read a memory. PraMem practises on recorded actions of a user: it
predicts them, and keeps what it learns as patterns of the user and alerts to its own mistakes.
H2Memory reads logs of a phone and dialogues: from logs it writes situations, from dialogues the
needs and preferences of the user. RGMem files facts in a graph of topics and events, and sums up
what they show as theories.

A scripted model finds out which output field a prompt asks for first, e.g. "links", and gives the
answer that its script has for this field. So the answers of a script are keyed by names of output
fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import dspy
import pytest
from hypothesis import strategies as st

# A script answers every call of one model: it is called with the name of the first output field,
# the text of the prompt and the number of the call, and returns output fields or a raw reply.
Script = Callable[[str, str, int], Any]

# Answers of a scripted model by the first output field; a function makes each from the prompt.
Answers = dict[str, Callable[[str], dict[str, Any]]]


# Histories.


def behavior_history(
    records: int = 30, profile: str = "Ann, 34, nurse", history_id: str = "ann"
) -> Any:
    """Return a history of a profile and behaviour records a1, a2, ... in batches of ten.

    A record says in which situation the user was and what the user did: the record a7 says that in
    "situation-7-x" the user did "action-7-x". An empty `profile` is left out.
    """
    from mempiler import History
    from mempiler.records import Action, Behavior, Profile, Turn

    items: list[Any] = []
    if profile:
        profile_turn = Turn(id="profile:1", speaker="profile", text=profile)
        items.append(Profile(id="profile", turns=(profile_turn,)))

    start = datetime(2024, 1, 1, 8)
    actions = [
        Action(
            id=f"a{number}",
            time=start + timedelta(hours=number),
            scene="video",
            situation=f"situation-{number}-x",
            action=f"action-{number}-x",
        )
        for number in range(1, records + 1)
    ]
    for first in range(0, records, 10):
        items.append(Behavior.from_actions(f"b{first}", actions[first : first + 10]))
    return History(id=history_id, items=tuple(items))


def logs_and_dialogues(
    months: int = 3, logs: int = 4, history_id: str = "pal", has_last_dialogue: bool = True
) -> Any:
    """Return a history as the benchmark PAL-Bench has them: logs and a dialogue in each month.

    Logs say what a user did on a phone, such as what was searched for. The items are L1, D1, L2,
    D2, ...; the logs have the turns L1:1, L1:2, ..., and a dialogue has four turns, D1:1 to D1:4.

    Args:
        months: The number of months.
        logs: The number of log entries before each dialogue.
        history_id: The id of the history.
        has_last_dialogue: Whether the last logs are followed by their dialogue.
    """
    from mempiler import History, Session, Turn
    from mempiler.records import Logs

    items: list[Any] = []
    for month in range(1, months + 1):
        start = datetime(2024, month, 3, 8)
        log_turns = [
            Turn(
                id=f"L{month}:{number}",
                speaker="log",
                text=f"searched thing-{month}-{number}",
                time=start + timedelta(hours=number),
            )
            for number in range(1, logs + 1)
        ]
        dialogue_turns = [
            Turn(
                id=f"D{month}:{number}",
                speaker="user" if number % 2 else "assistant",
                text=f"about matter-{month} at step {number}",
            )
            for number in range(1, 5)
        ]
        items.append(Logs(id=f"L{month}", time=start, turns=tuple(log_turns)))
        dialogue_time = start + timedelta(days=1)
        items.append(Session(id=f"D{month}", time=dialogue_time, turns=tuple(dialogue_turns)))
    if not has_last_dialogue:
        items.pop()
    return History(id=history_id, items=tuple(items))


def random_graph_paths() -> Any:
    """Return a strategy for paths under which RGMem files evidence, broken paths among them.

    A path leads from a base, one of the fixed topics, over narrower concepts to events. Here it is
    broken if its base is unknown or a concept comes twice.
    """
    from mempiler.programs.rgmem.graph import GraphPath
    from mempiler.programs.rgmem.memory import BASES

    concepts = st.lists(st.sampled_from(["Alpha", "Beta", "Gamma", "Delta"]), max_size=4)
    events = st.lists(st.sampled_from(["Run", "Swim", "Read"]), max_size=3)
    bases = st.sampled_from([*BASES[:2], "Elsewhere"])
    paths = st.builds(GraphPath, bases, concepts.map(tuple), events.map(tuple), st.just(("label",)))
    return st.lists(paths, max_size=3)


# Prompts.


def prompt_field(text: str, field: str) -> str:
    """Return the value of an input field in a prompt.

    It stands between the last header of this field and the next header. In this prompt, the value
    of "practised_record" is the line that begins with "[a7]":

        [[ ## practised_record ## ]]
        [a7] (1 January 2024, Monday 15:00) user: video; situation-7-x => action-7-x

        [[ ## thinking ## ]]
        ...
    """
    value = text.rsplit(f"[[ ## {field} ## ]]", 1)[1].split("[[ ##")[0]
    return value.split("\n\nRespond with")[0].strip()


def proposal_ids(text: str) -> list[str]:
    """Return the ids of the proposals that a prompt of PraMem's review shows."""
    return re.findall(r'"proposal": "(r\d+)"', prompt_field(text, "proposals"))


def pool_ids(text: str) -> list[str]:
    """Return three ids of proposals that a prompt of PraMem's adjustment shows.

    They are the first proposal of each of the first three records.
    """
    pattern = r'"proposal": "(p-\d+)",\s*"record": "(\w+)"'
    first_ids: dict[str, str] = {}
    for proposal_id, record in re.findall(pattern, prompt_field(text, "proposal_pool")):
        first_ids.setdefault(record, proposal_id)
    return list(first_ids.values())[:3]


# Scripts.


def script(answers: Answers) -> Callable[..., Script]:
    """Return a function that makes scripts with these answers, which depend on the prompt alone.

    `script(answers)(plans="no")` makes a script with another answer for the output field `plans`:
    output fields, a raw reply, or a function of the prompt and the number of the call.
    """

    def make_script(**replacements: Any) -> Script:
        def reply(kind: str, text: str, n: int) -> Any:
            if kind in replacements:
                replacement = replacements[kind]
                if callable(replacement):
                    return replacement(text, n)
                return replacement
            if kind in answers:
                return answers[kind](text)
            # Answers of questions are no concern of these scripts: any text will do.
            if kind == "reasoning":
                return {"reasoning": "x", "answer": "x"}
            return {kind: "x"}

        return reply

    return make_script


# PraMem's scripted model. Each function returns what the model replies to one kind of prompt: a
# value for each output field. In prompts, proposals that are reviewed have the ids r1, r2, ...


def _id_of_practised_record(text: str) -> str:
    """Return the id of the record that a prompt of PraMem is about: "a7" if it shows "[a7] ..."."""
    line = prompt_field(text, "practised_record")
    match = re.match(r"\[([^\]]+)\]", line)
    assert match is not None, f"no id in brackets at the beginning: {line}"
    return match[1]


def _proposals_reply(text: str) -> dict[str, Any]:
    """Reply with three proposals, "one of a7" and so on, to a prompt about the record a7.

    Models spell the names of actions differently, and so do these proposals.
    """
    record_id = _id_of_practised_record(text)
    return {
        "proposals": [
            {"action": "Add Pattern", "trigger": "t", "content": f"one of {record_id}"},
            {"action": "add alert", "trigger": "t", "content": f"two of {record_id}"},
            {"action": "add_pattern", "trigger": "t", "content": f"three of {record_id}"},
        ]
    }


def _reflection_reply(text: str) -> dict[str, Any]:
    """Reply that the prediction was wrong, and with three proposals."""
    judged_task = {"task": "watch", "verdict": "Incorrect", "analysis": "-"}
    return {"tasks": [judged_task], **_proposals_reply(text)}


def _groundedness_reply(text: str) -> dict[str, Any]:
    """Reply that every proposal is grounded in the records: with others it would not hold."""
    verdicts = [{"proposal": proposal, "sensitive": True} for proposal in proposal_ids(text)]
    return {"groundedness": verdicts}


def _generality_reply(text: str) -> dict[str, Any]:
    """Reply that every proposal is general: it holds for more than one situation."""
    verdicts = [{"proposal": proposal, "general": True} for proposal in proposal_ids(text)]
    return {"generality": verdicts}


def _scene_choices_reply(text: str) -> dict[str, Any]:
    """Reply that every proposal fits several situations."""
    choices = [{"proposal": proposal, "situation": "several"} for proposal in proposal_ids(text)]
    return {"scene_choices": choices}


def _decisions_reply(text: str) -> dict[str, Any]:
    """Reply that one pattern is to be adopted, which three proposals support."""
    supporting_ids = pool_ids(text)
    change = {
        "action": "add pattern",
        "text": f"agreed {supporting_ids[0]}",
        "proposal_ids": supporting_ids,
    }
    return {"decisions": "-", "changes": [change]}


ANSWER = {"answer": "Yes"}
PRAMEM_ANSWERS: Answers = {
    "useful_patterns": lambda _: {
        "useful_patterns": ["p"],
        "useful_alerts": [],
        "reasoning": "hm",
        "predicted_action": "watched",
    },
    "predicted_action": lambda _: {"predicted_action": "watched"},
    "tasks": _reflection_reply,
    "proposals": _proposals_reply,
    "plans": lambda _: {
        "plans": [{"direction": "all reversed", "details": "likes become reports"}],
    },
    "groundedness": _groundedness_reply,
    "virtual_scenes": lambda _: {
        "virtual_scenes": [f"video; virtual {number}" for number in range(1, 8)],
    },
    "generality": _generality_reply,
    "scene_choices": _scene_choices_reply,
    "decisions": _decisions_reply,
    "answer": lambda _: ANSWER,
    "relevant_patterns": lambda _: {
        "relevant_patterns": [],
        "relevant_alerts": [],
        "reasoning": "-",
        **ANSWER,
    },
}
"""PraMem's model: it makes three proposals in a round, and all of them pass its own review.

Then it adopts one pattern, which is supported by the first proposal of each of three records.
"""
pramem_script = script(PRAMEM_ANSWERS)


# H2Memory's scripted model. Here too, each function returns the reply to one kind of prompt.


def _links_reply(text: str) -> dict[str, Any]:
    """Reply that the second log of the prompt was caused by the first, e.g. L2:2 by L2:1."""
    # The field holds the id of the first log, "L2:1".
    batch, _, _ = prompt_field(text, "first_log").partition(":")
    link = {"log_id": f"{batch}:2", "caused_by": f"{batch}:1", "follows": None}
    return {"links": [link]}


def _found_situation_reply(text: str) -> dict[str, Any]:
    """Reply with a situation that names the logs of the prompt; odd months are about health."""
    # A line of the field is "[L2:1] (3 February 2024, Saturday 09:00) log: searched thing-2-1".
    linked_logs = prompt_field(text, "linked_logs")
    log_ids = re.findall(r"^\[(L\d+:\d+)\]", linked_logs, re.MULTILINE)
    batch, _, _ = log_ids[0].partition(":")
    month = int(batch.removeprefix("L"))
    is_odd_month = month % 2 == 1
    # Models write aspects in several forms.
    aspects = "Health" if is_odd_month else ["family", "WORK"]
    return {
        "found_situation": {
            "situation": f"situation of {' '.join(log_ids)}",
            "aspects": aspects,
        }
    }


def _outlines_reply(text: str) -> dict[str, Any]:
    """Reply with two topics of the dialogue in the prompt, each in two of its turns."""
    # A line of the field begins with the id of its turn, "[D2:1]".
    months = re.findall(r"^\[D(\d+):", prompt_field(text, "conversation"), re.MULTILINE)
    month = months[0] if months else "0"

    def topic(what: str, first_turn: int) -> dict[str, Any]:
        return {
            "turn_span": [f"D{month}:{first_turn}", f"D{month}:{first_turn + 1}"],
            "requirement": f"{what} in month {month}",
            "solution_list": {
                "solution": f"plan {what} {month}",
                "user_feedback": "fine",
                "feedback_type": "Positive",
            },
            "preference": f"gentle {what} {month}",
        }

    return {"outlines": [topic("sleeping soundly", 1), topic("cooking vegetables", 3)]}


def _updating_aspects_reply(text: str) -> dict[str, Any]:
    """Reply with a summary to which the month of the new situations is added: "known 1+3".

    An aspect is a part of life, such as health. Odd months are about health, even ones about work.
    """
    months = re.findall(r"situation of L(\d+):1", prompt_field(text, "situations_since"))
    month = int(months[0])
    is_odd_month = month % 2 == 1
    aspect = "health" if is_odd_month else "Work"

    # A line of the field is "health: known 1"; an unknown aspect is "health:".
    summaries: dict[str, str] = {}
    for line in prompt_field(text, "background_before").splitlines():
        name, _, known = line.partition(":")
        summaries[name] = known.strip()
    summary_before = summaries[aspect.lower()]
    summary = f"{summary_before}+{month}" if summary_before else f"known {month}"
    return {
        "updating_aspects": [aspect],
        "updating_content": [{"aspect": aspect, "summary": summary}],
    }


def _detailed_need_reply(text: str) -> dict[str, Any]:
    """Reply with a refined need: what is known of the user follows it in angle brackets."""
    stated_need = prompt_field(text, "stated_need")
    background = prompt_field(text, "overall_background")
    situations = prompt_field(text, "recent_situations")
    return {"detailed_need": f"{stated_need} <{background} / {situations}>"}


def _general_need_reply(text: str) -> dict[str, Any]:
    """Reply with a type of needs that is named by their number: "type(3)"."""
    needs = json.loads(prompt_field(text, "specific_needs"))
    return {"general_need": f"type({len(needs)})"}


def _general_preference_reply(text: str) -> dict[str, Any]:
    """Reply with a principle that lists some preferences: "principle(gentle sleep, ...)"."""
    experiences = json.loads(prompt_field(text, "preference_experiences"))
    return {"general_preference": f"principle({', '.join(experiences)})"}


def _principle_verdict_reply(text: str) -> dict[str, Any]:
    """Reply with a revised principle, to which the new preferences are added."""
    principle = prompt_field(text, "principle_so_far")
    experiences = json.loads(prompt_field(text, "experiences_since"))
    revised = f"{principle} & {', '.join(experiences)}"
    return {"principle_verdict": {"adjust": "Yes", "revised": revised}}


H2MEMORY_ANSWERS: Answers = {
    "links": _links_reply,
    "found_situation": _found_situation_reply,
    "outlines": _outlines_reply,
    "detailed_need": _detailed_need_reply,
    "updating_aspects": _updating_aspects_reply,
    "general_need": _general_need_reply,
    "general_preference": _general_preference_reply,
    "type_verdict": lambda _: {"type_verdict": {"adjust": "No"}},
    "principle_verdict": _principle_verdict_reply,
}
"""H2Memory's model: each answer is made from the prompt alone, so that order does not matter.

The second log of a session is caused by the first. Situations of odd sessions are about health, of
even ones about work and family. A dialogue has a topic on sleep and one on food. Summaries hold
what they were made from, e.g. "known 1+3" is the background that was written from months 1 and 3.
"""
h2memory_script = script(H2MEMORY_ANSWERS)


# RGMem's scripted model.

RUNNING_PATH = {
    "base": "Interests & Entertainment",
    "concepts": ["Sports"],
    "events": ["Running"],
}
SLEEP_PATH = {
    "base": "Health and Wellness",
    "concepts": [],
    "events": ["Sleep"],
}


def _fact_of_session(session: int) -> dict[str, Any]:
    """Return a fact of a session with a conclusion about Ann and one about Bob."""
    about_ann = {
        "text": f"Ann ran in week {session}",
        "relevance": "High",
        "turn_ids": [f"D{session}:1"],
    }
    about_bob = {
        "text": f"Bob saw week {session}",
        "relevance": "base",
        "turn_ids": [f"[D{session}:2]"],
    }
    return {
        "fact": f"Ann and Bob spoke of week {session}.",
        "conclusions": [about_ann, about_bob],
    }


def _edge_labels(session: int, text: str) -> dict[str, Any]:
    """Label every segment of the prompt, an edge of the graph, with its id and the session."""
    segment_ids = dict.fromkeys(re.findall(r'"segment_id": "(s\d+)"', text))
    labels = [
        {"segment_id": segment_id, "label": f"{segment_id} of week {session}"}
        for segment_id in segment_ids
    ]
    return {"edge_labels": labels}


@pytest.fixture
def rgmem_script() -> Script:
    """Return RGMem's script: every session is about running, and odd ones about sleep too.

    A theory is a summary of what many facts show. Here it has the number of its call.
    """

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        # The first turn that the prompt shows, e.g. "[D2:1]", tells the session.
        turn_id = re.search(r"[\[ ]D(\d+):", text)
        session = int(turn_id.group(1)) if turn_id else 0
        match kind:
            case "fact":
                return _fact_of_session(session)
            case "entity_paths":
                paths = [RUNNING_PATH, SLEEP_PATH] if session % 2 else [RUNNING_PATH]
                return {"entity_paths": paths}
            case "edge_labels":
                return _edge_labels(session, text)
            case "fact_summary":
                return {
                    "fact_summary": f"relation theory {n}",
                    "inferred_traits": "- Inferred Trait/Interest: steady",
                }
            case "general_facts":
                return {
                    "general_facts": f"- concept theory {n}",
                    "specific_facts": "On rain: rare",
                }
            case "macro_law":
                return {
                    "macro_law": f"law {n}",
                    "core_traits": "* keen",
                    "restrictions": "no heat",
                }
            case "keywords":
                sports = {"name": "Sports", "retrieve": ["summary", "inference"]}
                return {"keywords": [sports, {"name": "ran"}]}
            case _:
                return {kind: "x"}

    return reply


# Written memories.


class WriteResult:
    """What came of writing a history under a scripted model: a memory, failures and prompts.

    A prompt is known by its first output field: `calls["facts"]` is how often a model was asked for
    "facts" first.
    """

    def __init__(self, cached_memory: Any, engine: Any) -> None:
        self.memory = cached_memory.memory
        self.calls = engine.calls
        self.prompts = engine.prompts
        self.failures = [failure for part in cached_memory.ancestors() for failure in part.failures]

    def prompts_of(self, output: str) -> list[str]:
        """Return the texts of the prompts with this first output field."""
        return [text for kind, text in self.prompts if kind == output]

    def prompt_fields(self, output: str, field: str) -> list[str]:
        """Return the values of an input field in all prompts with this first output field."""
        return [prompt_field(text, field) for text in self.prompts_of(output)]


@pytest.fixture
def write_memory(scripted: Any) -> Callable[..., WriteResult]:
    """Return a function that writes a history: `write_memory(program, history, script)`."""

    def write(program: Any, history: Any, script: Script) -> WriteResult:
        lm = scripted(script)
        with dspy.context(lm=lm):
            cached_memory = program.remember(history)
        return WriteResult(cached_memory, lm.engine)

    return write


@pytest.fixture
def practise(write_memory: Any) -> Callable[..., WriteResult]:
    """Return a function that has PraMem practise on recorded actions of a user.

    `practise(rounds=5, records=30, answers={"plans": "no"})`: the records are a1 to a30, the
    answers replace those of the script, and all other arguments are settings of PraMem.
    """
    from mempiler.programs.catalog import build

    def practise(
        rounds: int = 5,
        records: int = 30,
        answers: dict[str, Any] | None = None,
        **settings: Any,
    ) -> WriteResult:
        all_settings = {"rounds": rounds, "min_history": 5, **settings}
        program = build("pramem", task="behavior-prediction", **all_settings)
        history = behavior_history(records)
        return write_memory(program, history, pramem_script(**answers or {}))

    return practise


@pytest.fixture
def write_with_h2memory(write_memory: Any) -> Callable[..., WriteResult]:
    """Return a function that writes logs and dialogues under H2Memory.

    `write_with_h2memory(history, answers={"outlines": "no"}, clusters=1)`: the answers replace
    those of the script, and all other arguments are settings of H2Memory.
    """
    from mempiler.engines.embedders import embedder
    from mempiler.programs.catalog import build

    def write(history: Any, answers: dict[str, Any] | None = None, **settings: Any) -> WriteResult:
        program = build("h2memory", embedder=embedder(), **settings)
        return write_memory(program, history, h2memory_script(**answers or {}))

    return write
