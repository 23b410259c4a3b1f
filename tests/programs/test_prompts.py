"""Reviewed prompts: what every predictor, task and judge asks stands as text in tests/prompts.

So a change of a prompt, or of what it shows, is seen in a review. To write all files anew, and to
delete those that nothing asks any more:

    MEMPILER_PROMPTS=write python -m pytest tests/programs/test_prompts.py

The offline engine answers, or a script. A prompt that is made from an earlier answer holds its
words. A case is a method with settings, under which a small history and one question have every
predictor of the method asked; its folder in tests/prompts has a file for each predictor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

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
from mempiler.programs.names import METHODS
from mempiler.programs.threads import in_order
from mempiler.signatures.judges import JUDGES
from mempiler.signatures.rgmem import LAYERS

from tests.conftest import suite

from .conftest import behavior_history, h2memory_script, logs_and_dialogues, pramem_script

PROMPTS = Path(__file__).parents[1] / "prompts"
WRITES = os.environ.get("MEMPILER_PROMPTS") == "write"
"""Whether the tests write the files, in place of comparing with them."""

Messages = list[dict[str, Any]]


# Prompts, as they reach a model and as files show them


class PromptListener(BaseCallback):
    """Keeps the prompts that reach a language model."""

    def __init__(self) -> None:
        self.prompts: list[Messages] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.prompts.append(inputs["messages"])

    def last_prompt_of(self, signature: type[dspy.Signature]) -> Messages | None:
        """Return the last prompt of a signature; None if there was none."""
        system_message = adapter().format_system_message(signature)
        for prompt in reversed(self.prompts):
            if prompt[0]["content"] == system_message:
                return prompt
        return None


@contextlib.contextmanager
def listening(lm: Any = None) -> Iterator[PromptListener]:
    """Run the block on a model, by default the offline engine, and listen to its prompts."""
    listener = PromptListener()
    lm = lm or language_model(cache=False)
    with (
        dspy.context(lm=lm, adapter=adapter(), callbacks=[listener], trace=None),
        in_order(),
    ):
        yield listener


def prompt_as_text(messages: Messages) -> str:
    """Return a prompt as a file shows it."""
    parts = [f"=== {message['role']}\n{message['content'].rstrip()}\n\n" for message in messages]
    return "".join(parts)


def assert_reviewed(prompts: Mapping[str, str], folder_name: str) -> None:
    """Assert that a folder has exactly these prompts, by file name; or write them."""
    folder = PROMPTS / folder_name
    if WRITES:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in prompts.items():
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")

    reviewed = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.txt")}
    assert prompts == reviewed, "if that is meant, run this again with MEMPILER_PROMPTS=write"


# What programs are asked

DATE = datetime(2024, 6, 1, 9)
QUESTION = {"question": "Which tea should I buy Ann for our hike?", "date": DATE}
NEED = {"question": "How can I sleep more soundly?"}

DIALOGUE = [
    ("Ann", "I moved to Lisbon last week, Bob, because of my new job at the library."),
    ("Bob", "How nice! Do you still hike on Sundays?"),
    ("Ann", "I do, and I only drink green tea on the way."),
    ("Bob", "I hike on Sundays too, and I drink green tea as well."),
]


def dialogue_history() -> History:
    """Return three sessions with nearly the same turns, so that facts merge and mentions add up."""
    sessions: list[Session] = []
    for number in (1, 2, 3):
        # Every session lacks the first turn of the one before.
        turns = tuple(
            Turn(id=f"D{number}:{turn_number}", speaker=speaker, text=text)
            for turn_number, (speaker, text) in enumerate(DIALOGUE[number - 1 :], 1)
        )
        time = datetime(2024, 5, 2 * number, 18)
        sessions.append(Session(id=f"D{number}", time=time, turns=turns))
    return History(id="ann-bob", items=tuple(sessions))


class TaskInput(NamedTuple):
    """What a program is given for a task."""

    history: History
    fields: dict[str, Any]


def task_inputs() -> dict[str, TaskInput]:
    """Return for each task a small history, and what is asked about it."""
    dialogue = dialogue_history()
    records = behavior_history(30)
    logs = logs_and_dialogues(4)
    return {
        "question-answering": TaskInput(dialogue, QUESTION),
        "personal-response": TaskInput(dialogue, QUESTION),
        "multiple-choice": TaskInput(
            dialogue, {**QUESTION, "options": ["(a) green tea", "(b) black tea"]}
        ),
        "behavior-prediction": TaskInput(
            records,
            {"question": "video; a clip. Does the user like it?", "options": ["Yes", "No"]},
        ),
        "requirement-restatement": TaskInput(logs, NEED),
        "solution-proposal": TaskInput(logs, NEED),
        "solution-selection": TaskInput(
            logs, {**NEED, "options": [f"S{number}: way {number}" for number in range(1, 9)]}
        ),
        "dialogue-reply": TaskInput(
            logs,
            {
                "question": "Yes, please.",
                "dialogue": "user: I cannot sleep.\nassistant: Is it the heat?",
            },
        ),
    }


# Methods

SETTINGS_TO_REACH_ALL: dict[str, dict[str, Any]] = {
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
"""Settings by method, with which every predictor is asked soon."""

TASKS_OF_METHODS = {"pramem": "behavior-prediction", "h2memory": "dialogue-reply"}
"""The task of a method; the others answer a question."""

POLICY_CASES = {"pgr": "pgr+turn-rag", "logs": "logs+turn-rag"}
"""For every policy, the method that it is tested over."""


@dataclass(frozen=True)
class Case:
    """A method with settings."""

    method: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        return TASKS_OF_METHODS.get(self.method, "question-answering")


VARIANTS = {
    "pgr-chain": Case("pgr", {"strategy": "chain", "augment": "rewrite"}),
    "pgr-once": Case("pgr", {"iterations": 0, "augment": "none", "summary": False}),
    "memory-r2-bare": Case("memory-r2", {"earlier": False, "task.abstain": True}),
    "memory-r2-single": Case("memory-r2", {"single_agent": True}),
    "rgmem-flat": Case("rgmem", {"use_rg": False}),
    "rgmem-evidence-alone": Case("rgmem", {"use_l1": False}),
    "h2memory-topics-alone": Case(
        "h2memory", {"use_situations": False, "use_background": False, "clustered": False}
    ),
    "h2memory-logs-alone": Case("h2memory", {"use_topics": False, "use_principles": False}),
    "h2memory-unprincipled": Case("h2memory", {"use_principles": False}),
    "h2memory-chinese": Case("h2memory", {"language": "Chinese", "task.language": "Chinese"}),
    "pramem-at-once": Case("pramem", {"deep_thinking": False}),
    "pramem-true-scene-told": Case("pramem", {"blind": False}),
    "pramem-two-step": Case("pramem", {"two_step": True}),
    "pramem-unreflected": Case("pramem", {"reflection": False}),
    "turn-rag-reasoning": Case("turn-rag", {"task.reasoning": True, "task.abstain": True}),
    "logs-summed-up": Case("logs+turn-rag", {"earlier": "summary"}),
}
"""Methods with settings under which they ask other prompts, or not all of them."""

PLAIN_CASES = {method: Case(method) for method in [*METHODS, *POLICY_CASES.values()]}


@pytest.fixture
def scripted_models(scripted: Any, rgmem_script: Any) -> dict[str, Any]:
    """Models by method, where the offline engine does not reach all prompts and their parts."""
    keywords = [
        {"name": "Sports", "retrieve": LAYERS},
        {"name": "Interests and Entertainment", "retrieve": ["summary"]},
    ]

    def reply_of_rgmem(kind: str, text: str, n: int) -> Any:
        if kind == "keywords":
            return {"keywords": keywords}
        return rgmem_script(kind, text, n)

    return {
        "pramem": scripted(pramem_script()),
        "h2memory": scripted(h2memory_script()),
        "rgmem": scripted(reply_of_rgmem),
    }


def prompts_of(case: Case, program: Any, lm: Any) -> dict[str, str]:
    """Return the last prompt of each predictor of a program, which has to ask all of them."""
    inputs = task_inputs()
    history, fields = inputs[case.task]
    if case.method.startswith("logs+"):
        # It needs a history with logs, whatever the task is.
        history = inputs["dialogue-reply"].history

    # An answer that cannot be read is no matter here, as long as it was asked for.
    with listening(lm) as listener, contextlib.suppress(AdapterParseError):
        program(history=history, **fields)

    prompts: dict[str, str] = {}
    for path, predictor in program.all_predictors().items():
        prompt = listener.last_prompt_of(predictor.signature)
        assert prompt is not None, f"{path} is not asked: make its case reach it"
        prompts[path.removeprefix("method.")] = prompt_as_text(prompt)
    return prompts


def build_case(case: Case) -> Any:
    settings = {**SETTINGS_TO_REACH_ALL.get(case.method, {}), **case.settings}
    return build(case.method, case.task, embedder(), **settings)


def system_messages(program: Any) -> dict[str, str]:
    """Return the part of each prompt that is the same for all inputs."""
    return {
        path.removeprefix("method."): adapter().format_system_message(predictor.signature)
        for path, predictor in program.all_predictors().items()
    }


@pytest.mark.parametrize("method", PLAIN_CASES)
def test_a_method_asks_what_was_reviewed(method: str, scripted_models: dict[str, Any]) -> None:
    """A person has reviewed the prompts in tests/prompts/METHOD, one file for each predictor.

    A small history is written and a question is asked, so that all predictors of the method ask.
    """
    case = PLAIN_CASES[method]

    prompts = prompts_of(case, build_case(case), scripted_models.get(method))

    assert_reviewed(prompts, method)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_method_with_settings_asks_what_was_reviewed(
    variant: str, scripted_models: dict[str, Any]
) -> None:
    """Some settings change prompts. A person has reviewed those in tests/prompts/VARIANT.

    The folder has a file for each prompt whose instructions differ from the method's default.
    """
    case = VARIANTS[variant]
    program = build_case(case)

    prompts = prompts_of(case, program, scripted_models.get(case.method))

    plain_messages = system_messages(build(case.method, case.task, embedder()))
    messages = system_messages(program)
    changed_prompts = {
        path: text for path, text in prompts.items() if plain_messages.get(path) != messages[path]
    }
    assert_reviewed(changed_prompts, variant)


def test_tasks_ask_what_was_reviewed() -> None:
    """A task turns a recalled context and a query into an answer, and has one prompt for that.

    A person has reviewed these prompts in tests/prompts/tasks.
    """
    prompts: dict[str, str] = {}
    for task, (history, fields) in task_inputs().items():
        program = build("turn-rag", task)
        with listening() as listener, contextlib.suppress(AdapterParseError):
            program(history=history, **fields)
        prompts[task] = prompt_as_text(listener.prompts[-1])

    assert_reviewed(prompts, "tasks")


# Judges

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
PREFERENCE_EXAMPLE = dspy.Example(
    question="Plan my week",
    answer="Has a bad knee",
    profile="age: 40",
    facts="Swims at dawn\nHas a bad knee",
    date="1 June",
)


class JudgeCall(NamedTuple):
    """A judge, and the arguments that it is called with, such as question, gold and answer."""

    judge: Any
    arguments: tuple[Any, ...]


JUDGE_CALLS = {
    "answer": JudgeCall(Judge, ("Where does Ann live?", "Lisbon", "In Lisbon.")),
    "generous": JudgeCall(GenerousJudge, ("Where does Ann live?", "Lisbon", "In Lisbon.")),
    "acknowledgement": JudgeCall(
        AcknowledgementJudge, ("Plan", ["Bad knee", "Swims"], "[f1] my knee")
    ),
    "acknowledgement-strict": JudgeCall(
        StrictAcknowledgementJudge, ("Plan", ["Swims"], "[f1] my knee")
    ),
    "rubric-item": JudgeCall(
        RubricJudge, ("Where does Ann live?", "It says: Lisbon", "In Lisbon.")
    ),
    "rubric-item-alone": JudgeCall(BlindRubricJudge, ("Where?", "It says: Lisbon", "In Lisbon.")),
    "same-event": JudgeCall(SameEventJudge, ("Ann moved to Lisbon", "1. The move")),
    "preference": JudgeCall(PreferenceJudge, (PREFERENCE_EXAMPLE, "Swim.", "Run.")),
    "needs": JudgeCall(NeedsJudge, (TOPIC, "A cool room.")),
    "need-understanding": JudgeCall(NeedUnderstandingJudge, (PERSONA, "user: a", "user: b", 1)),
    "preference-understanding": JudgeCall(
        PreferenceUnderstandingJudge, (PERSONA, "user: a", "user: b", 1)
    ),
    "simulated-user": JudgeCall(
        SimulatedUser,
        (
            PERSONA,
            [Utterance(role="assistant", action="solution proposal", text="Tea?")],
            "solution feedback",
        ),
    ),
}
for _question_type in JUDGES:
    JUDGE_CALLS[f"longmemeval-{_question_type}"] = JudgeCall(
        LongMemEvalJudge, (_question_type, "Where?", "Lisbon", "Lisbon")
    )


def test_judges_ask_what_was_reviewed() -> None:
    """A judge is a model that a benchmark asks whether an answer is right.

    A person has reviewed the prompts of judges in tests/prompts/judges.
    """
    prompts: dict[str, str] = {}
    for name, (judge, arguments) in JUDGE_CALLS.items():
        with listening() as listener, contextlib.suppress(AdapterParseError):
            judge(language_model(cache=False), adapter())(*arguments)
        prompts[name] = prompt_as_text(listener.prompts[0])

    assert_reviewed(prompts, "judges")


# Nothing is left out, and nothing is left over


def test_every_signature_of_a_program_or_a_judge_has_a_reviewed_prompt() -> None:
    """A signature declares a prompt. For each, some file in tests/prompts must hold its text.

    The prompts that write synthetic data are reviewed by tests/data.
    """
    texts = [path.read_text(encoding="utf-8") for path in PROMPTS.glob("*/*.txt")]
    all_texts = "\n".join(texts)
    signatures = [signature for signature in suite() if ".synthesis" not in signature.__module__]

    missing = [
        signature.__name__
        for signature in signatures
        if adapter().format_system_message(signature).rstrip() not in all_texts
    ]

    assert signatures
    assert missing == []


def test_every_folder_of_prompts_belongs_to_a_case() -> None:
    """A case is a method with settings, whose prompts are reviewed in a folder."""
    # The last two are those of tests/data.
    other_folders = {"tasks", "judges", "synthesis_memoryquest", "synthesis_palset"}
    folders = {path.name for path in PROMPTS.iterdir()}

    left_over = folders - {*PLAIN_CASES, *VARIANTS, *other_folders}
    if WRITES:
        for name in left_over:
            shutil.rmtree(PROMPTS / name)
        left_over = set()

    assert left_over == set(), "nothing asks these prompts any more"
