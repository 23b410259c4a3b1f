"""What every predictor asks, as text that is reviewed: a change of wording or context is one of tests/prompts.

All files are made anew, and those that nothing asks deleted, by: MEMPILER_PROMPTS=write python -m pytest FILE. The
offline engine answers, or a script, so a prompt that is made from an earlier answer holds its words.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError
from mempiler import History, Session, Turn, build
from mempiler.data.beam.scorer import BlindRubricJudge, RubricJudge, SameEventJudge
from mempiler.data.judge import (
    AcknowledgementJudge,
    GenerousJudge,
    Judge,
    PreferenceJudge,
    StrictAcknowledgementJudge,
)
from mempiler.data.longmemeval import LongMemEvalJudge
from mempiler.data.palbench.benchmark import NeedsJudge
from mempiler.data.palbench.dialogue import (
    NeedUnderstandingJudge,
    PreferenceUnderstandingJudge,
    SimulatedUser,
    Utterance,
)
from mempiler.data.palbench.topics import Persona, Topic
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.programs.adapter import adapter
from mempiler.programs.names import METHODS, POLICIES
from mempiler.programs.tasks.catalog import TASKS, task_class
from mempiler.programs.threads import in_order
from mempiler.signatures.judges import JUDGES
from mempiler.signatures.rgmem import LAYERS

from tests.conftest import suite

from .conftest import behavior, pal, pal_script, practice_script

PROMPTS = Path(__file__).parents[1] / "prompts"
WRITES = os.environ.get("MEMPILER_PROMPTS") == "write"
DATE = datetime(2024, 6, 1, 9)
QUESTION = {"question": "Which tea should I buy Ann for our hike?", "date": DATE}
CHOICE = {**QUESTION, "options": ["(a) green tea", "(b) black tea"]}
ACTION = {"question": "video; a clip. Does the user like it?", "options": ["Yes", "No"]}
NEED = {"question": "How can I sleep more soundly?"}
SAID = (
    ("Ann", "I moved to Lisbon last week, Bob, because of my new job at the library."),
    ("Bob", "How nice! Do you still hike on Sundays?"),
    ("Ann", "I do, and I only drink green tea on the way."),
    ("Bob", "I hike on Sundays too, and I drink green tea as well."),
)


def talk() -> History:
    """Three sessions that say nearly the same, so that facts merge and mentions add up."""
    sessions = [
        Session(
            id=f"D{s}",
            time=datetime(2024, 5, 2 * s, 18),
            turns=tuple(
                Turn(id=f"D{s}:{n}", speaker=who, text=text)
                for n, (who, text) in enumerate(SAID[s - 1 :], 1)
            ),
        )
        for s in (1, 2, 3)
    ]
    return History(id="ann-bob", items=tuple(sessions))


LOW: dict[str, dict[str, Any]] = {
    "pgr": {
        "every": 1,
        "merge_after": 1,
        "merge_score": 0.3,
        "augment_score": 0.1,
        "min_score": 0.0,
        "min_new": 1,
    },
    "fact-store": {"every": 1, "merge_after": 1, "merge_score": 0.3},
    "pgr+turn-rag": {"augment_score": 0.1, "min_score": 0.0, "min_new": 1},
    "rgmem": {"theta_inf": 1, "theta_sum": 1},
    "h2memory": {"clusters": 1},
    "pramem": {"rounds": 5},
}
"""Settings with which every predictor is asked soon."""
TASK = {"pramem": "behavior-prediction", "h2memory": "dialogue-reply"}
"""What a method is asked; the others answer a question."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pgr-chain": ("pgr", {"strategy": "chain", "augment": "rewrite"}),
    "memory-r2-bare": ("memory-r2", {"earlier": False, "task.abstain": True}),
    "memory-r2-single": ("memory-r2", {"single_agent": True}),
    "rgmem-flat": ("rgmem", {"use_rg": False}),
    "rgmem-evidence-alone": ("rgmem", {"use_l1": False}),
    "h2memory-topics-alone": (
        "h2memory",
        {"use_situations": False, "use_background": False, "clustered": False},
    ),
    "h2memory-logs-alone": ("h2memory", {"use_topics": False, "use_principles": False}),
    "h2memory-unprincipled": ("h2memory", {"use_principles": False}),
    "h2memory-chinese": ("h2memory", {"language": "Chinese", "task.language": "Chinese"}),
    "pgr-once": ("pgr", {"iterations": 0, "augment": "none", "summary": False}),
    "pramem-at-once": ("pramem", {"deep_thinking": False}),
    "pramem-true-scene-told": ("pramem", {"blind": False}),
    "pramem-two-step": ("pramem", {"two_step": True}),
    "turn-rag-reasoning": ("turn-rag", {"task.reasoning": True, "task.abstain": True}),
    "pramem-unreflected": ("pramem", {"reflection": False}),
    "logs-summed-up": ("logs+turn-rag", {"earlier": "summary"}),
}
"""Settings under which a method asks other prompts, or not all of them: it has none that it does not ask."""
POLICY = {"pgr": "pgr+turn-rag", "logs": "logs+turn-rag"}
CASES = (*METHODS, *POLICY.values(), *VARIANTS)


class Heard(BaseCallback):
    """Keeps the prompts that reach a language model."""

    def __init__(self) -> None:
        self.prompts: list[list[dict[str, Any]]] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.prompts.append(inputs["messages"])

    def of(self, signature: type[dspy.Signature]) -> list[dict[str, Any]] | None:
        """The last prompt of a signature."""
        system = adapter().format_system_message(signature)
        found = [prompt for prompt in self.prompts if prompt[0]["content"] == system]
        return found[-1] if found else None


@contextlib.contextmanager
def heard(lm: Any = None) -> Iterator[Heard]:
    """Runs a block on a model, else on the offline engine, and hears what it is asked."""
    found, lm = Heard(), lm or language_model(cache=False)
    with dspy.context(lm=lm, adapter=adapter(), callbacks=[found], trace=None), in_order():
        yield found


def shown(messages: list[dict[str, Any]]) -> str:
    """A prompt as a file shows it."""
    return "".join(
        f"=== {message['role']}\n{message['content'].rstrip()}\n\n" for message in messages
    )


def agree(found: dict[str, str], folder: str) -> None:
    """Holds that a folder has exactly these prompts, or writes them."""
    at = PROMPTS / folder
    if WRITES:
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir(parents=True)
        for name, text in found.items():
            (at / f"{name}.txt").write_text(text, encoding="utf-8")
    reviewed = {path.stem: path.read_text(encoding="utf-8") for path in at.glob("*.txt")}
    assert found == reviewed, (
        "if that is meant, make them anew as CONTRIBUTING.md says (MEMPILER_PROMPTS=write)"
    )


@pytest.fixture
def material() -> dict[str, tuple[Any, Any]]:
    """For each task a small history, and what is asked."""
    recorded, logged, told = behavior(30), pal(4), talk()
    fields = {
        "question-answering": QUESTION,
        "personal-response": QUESTION,
        "multiple-choice": CHOICE,
    }
    ways = {**NEED, "options": [f"S{n}: way {n}" for n in range(1, 9)]}
    reply = {
        "question": "Yes, please.",
        "dialogue": "user: I cannot sleep.\nassistant: Is it the heat?",
    }
    asked = {"requirement-restatement": NEED, "solution-proposal": NEED, "solution-selection": ways}
    return {
        **{name: (told, each) for name, each in fields.items()},
        "behavior-prediction": (recorded, ACTION),
        **{name: (logged, each) for name, each in {**asked, "dialogue-reply": reply}.items()},
    }


@pytest.fixture
def models(scripted: Any, graph_replies: Any) -> dict[str, Any]:
    """The scripts of methods of whose prompts the offline engine does not reach all, or not all that they can show."""
    plan = [
        {"name": "Sports", "retrieve": LAYERS},
        {"name": "Interests and Entertainment", "retrieve": ["summary"]},
    ]

    def planned(kind: str, text: str, n: int) -> Any:
        return {"keywords": plan} if kind == "keywords" else graph_replies(kind, text, n)

    return {
        "pramem": scripted(practice_script()),
        "h2memory": scripted(pal_script()),
        "rgmem": scripted(planned),
    }


def asked(case: str, material: dict[str, tuple[Any, Any]], lm: Any) -> tuple[Any, dict[str, str]]:
    """A program, and the last prompt of each of its predictors; it has to ask them all."""
    method, settings = VARIANTS.get(case, (case, {}))
    name = TASK.get(method, "question-answering")
    program = build(method, name, embedder(), **{**LOW.get(method, {}), **settings})
    history, fields = material[name]
    if method.startswith("logs+"):
        history, _ = material[TASK["h2memory"]]
    with heard(lm) as found, contextlib.suppress(AdapterParseError):
        program(history=history, **fields)
    prompts = {path: found.of(one.signature) for path, one in program.all_predictors().items()}
    silent = [path for path, prompt in prompts.items() if prompt is None]
    assert not silent, f"{case} does not ask {', '.join(silent)}: make its case reach it"
    return program, {
        path.removeprefix("method."): shown(prompt) for path, prompt in prompts.items() if prompt
    }


@pytest.mark.parametrize("case", CASES)
def test_a_method_asks_what_was_reviewed(case, material, models) -> None:
    method, _ = VARIANTS.get(case, (case, {}))
    program, found = asked(case, material, models.get(method))
    if case in VARIANTS:
        base = build(method, TASK.get(method, "question-answering"), embedder()).all_predictors()
        known, now = _systems(base), _systems(program.all_predictors())
        found = {path: text for path, text in found.items() if known.get(path) != now[path]}
    agree(found, case)


def _systems(predictors: dict[str, Any]) -> dict[str, str]:
    """The part of each prompt that is the same for every input."""
    layout = adapter()
    return {
        path.removeprefix("method."): layout.format_system_message(one.signature)
        for path, one in predictors.items()
    }


def test_a_task_asks_what_was_reviewed(material: dict[str, tuple[Any, Any]]) -> None:
    """Over recalled turns."""
    prompts = dict[str, str]()
    for name, (history, fields) in material.items():
        program = build("turn-rag", name)
        with heard() as found, contextlib.suppress(AdapterParseError):
            program(history=history, **fields)
        prompts[name] = shown(found.prompts[-1])
    agree(prompts, "tasks")


PERSONA = Persona(
    profile="age: 40",
    situation="Sleeps badly.",
    needs="wants quiet nights",
    preferences="likes calm ways",
)
TOPIC = Topic(
    user_query="How to sleep?",
    needs=("quiet", "a cool room"),
    requirement="To sleep through the night.",
)
PAIR = dspy.Example(
    question="Plan my week",
    answer="Has a bad knee",
    profile="age: 40",
    facts="Swims at dawn\nHas a bad knee",
    date="1 June",
)
JUDGED: dict[str, Callable[[Any, Any], Any]] = {
    "answer": lambda lm, how: Judge(lm, how)("Where does Ann live?", "Lisbon", "In Lisbon."),
    "generous": lambda lm, how: GenerousJudge(lm, how)(
        "Where does Ann live?", "Lisbon", "In Lisbon."
    ),
    "acknowledgement": lambda lm, how: AcknowledgementJudge(lm, how)(
        "Plan", ["Bad knee", "Swims"], "[f1] my knee"
    ),
    "acknowledgement-strict": lambda lm, how: StrictAcknowledgementJudge(lm, how)(
        "Plan", ["Swims"], "[f1] my knee"
    ),
    "rubric-item": lambda lm, how: RubricJudge(lm, how)(
        "Where does Ann live?", "It says: Lisbon", "In Lisbon."
    ),
    "rubric-item-alone": lambda lm, how: BlindRubricJudge(lm, how)(
        "Where?", "It says: Lisbon", "In Lisbon."
    ),
    "same-event": lambda lm, how: SameEventJudge(lm, how)("Ann moved to Lisbon", "1. The move"),
    "preference": lambda lm, how: PreferenceJudge(lm, how)(PAIR, "Swim.", "Run."),
    "needs": lambda lm, how: NeedsJudge(lm, how)(TOPIC, "A cool room."),
    "need-understanding": lambda lm, how: NeedUnderstandingJudge(lm, how)(
        PERSONA, "user: a", "user: b", 1
    ),
    "preference-understanding": lambda lm, how: PreferenceUnderstandingJudge(lm, how)(
        PERSONA, "user: a", "user: b", 1
    ),
    "simulated-user": lambda lm, how: SimulatedUser(lm, how)(
        PERSONA,
        [Utterance(role="assistant", action="solution proposal", text="Tea?")],
        "solution feedback",
    ),
    **{
        f"longmemeval-{kind}": lambda lm, how, kind=kind: LongMemEvalJudge(lm, how)(
            kind, "Where?", "Lisbon", "Lisbon"
        )
        for kind in JUDGES
    },
}


def test_a_judge_asks_what_was_reviewed() -> None:
    prompts = dict[str, str]()
    for name, judge in JUDGED.items():
        with heard() as found, contextlib.suppress(AdapterParseError):
            judge(language_model(cache=False), adapter())
        prompts[name] = shown(found.prompts[0])
    agree(prompts, "judges")


def test_every_prompt_but_those_that_write_data_is_in_a_file() -> None:
    written = "\n".join(path.read_text(encoding="utf-8") for path in PROMPTS.glob("*/*.txt"))
    asked = [kind for kind in suite() if ".synthesis" not in kind.__module__]
    missing = [
        kind.__name__
        for kind in asked
        if adapter().format_system_message(kind).rstrip() not in written
    ]
    assert missing == []


def test_every_policy_and_task_is_among_the_cases_and_no_folder_is_of_something_that_is_gone(
    material,
) -> None:
    assert set(POLICY) == set(POLICIES)
    assert set(material) == {name for name in TASKS if task_class(name).prompt is not None}
    others = {"tasks", "judges", "synthesis_memoryquest", "synthesis_palset"}
    gone = {path.name for path in PROMPTS.iterdir()} - {*CASES, *others}
    for name in gone if WRITES else ():
        shutil.rmtree(PROMPTS / name)
    assert WRITES or not gone, (
        f"tests/prompts/{', '.join(sorted(gone))}: nothing asks these prompts any more"
    )
