"""Fakes for trainings: a policy with a single weight, its trainer, and people who name colours.

The policy is the model that is trained to write memories. It first extracts facts from a session,
and then manages the memory by operations such as INSERT.
"""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from dspy.clients.provider import Provider, ReinforceJob
from mempiler import History, MemoryProgram, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.engines.local.trainer import StepResult
from mempiler.engines.metered_lm import MeteredLM
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.optimizers.logo_grpo import LoGoGRPO

from ...scripted_engine import chat_fields, facts_of, lines_of


@dataclass(frozen=True)
class PolicyCall:
    """A call of the policy."""

    kind: str
    """The first output field: "facts" to extract, "operations" to manage the memory."""
    text: str
    """The user message."""
    temperature: float
    rng: random.Random
    """Decides what is sampled. It follows from the request, so equal requests get equal answers."""
    weight: float
    """The weight of the policy, which training changes."""


Policy = Callable[[PolicyCall], str]
"""Returns the completion of a call."""


def diligent(call: PolicyCall, share: float = 0.5) -> str:
    """Extract every line as a fact, and insert each fact with the chance `share`."""
    if call.kind == "facts":
        return chat_fields(facts=lines_of(call.text))
    if call.kind == "operations":
        operations: list[dict[str, str]] = []
        for fact in facts_of(call.text):
            if call.rng.random() < share:
                operations.append(
                    {"op": "INSERT", "content": fact["fact"], "turn_id": fact["turn_id"]}
                )
        return chat_fields(operations=operations)
    return chat_fields(reasoning="", answer=call.text)


class PolicyEngine(OfflineEngine):
    """An engine that answers by a policy, and keeps its calls and completions in their order."""

    supports_response_schema = False

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.weight = 0.0
        self.calls: list[PolicyCall] = []
        self.completions: list[str] = []

    def reply(self, request: Any) -> str:
        first_output = re.search(r"Your output fields are:\s*1\. `(\w+)`", str(request.system))
        text = "\n".join(message.text for message in request.messages if message.role == "user")
        temperature = request.config.temperature or 0.0
        # As in the local engine: sampling follows from seed and prompt.
        seed = f"{request.config.seed} {text}" if temperature else text
        call = PolicyCall(
            kind=first_output.group(1) if first_output else "",
            text=text,
            temperature=temperature,
            rng=random.Random(seed),
            weight=self.weight,
        )
        self.calls.append(call)
        completion = self.policy(call)
        self.completions.append(completion)
        return completion


class OneWeightTrainer(ReinforceJob):
    """A trainer like the local one, with momentum and a reference, whose model has one weight."""

    def __init__(self, lm: Any, train_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(lm=lm, train_kwargs=train_kwargs)
        self.reference_weights: list[float] = []
        """The weight at the start of each stage."""
        self.restored_checkpoints: list[str] = []
        """The names of the checkpoints that were loaded."""
        self.has_ended = False
        lm.provider.trainers.append(self)

    @property
    def engine(self) -> PolicyEngine:
        """The engine whose weight is trained."""
        return self.lm.engine  # pyright: ignore[reportReturnType]

    def initialize(self) -> None:
        self.momentum = 0.0
        self.reference_weights.append(self.engine.weight)

    def step(self, train_data: Any, train_data_format: Any = None) -> StepResult:
        # The weight depends on everything that is sent: order, rewards and completions.
        self.momentum *= 0.5
        for group in train_data:
            for number, member in enumerate(group["group"], start=1):
                self.momentum += number * member["reward"]
                self.momentum += 0.001 * len(member["completion"]["content"])
        distance_to_reference = self.engine.weight - self.reference_weights[-1]
        self.engine.weight += self.momentum - 0.1 * distance_to_reference
        return StepResult(loss=self.engine.weight)

    def save_checkpoint(self, checkpoint_name: str) -> None:
        path = Path(self.train_kwargs["output_dir"]) / f"{checkpoint_name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([self.engine.weight, self.momentum]))
        self.checkpoints[checkpoint_name] = str(path)

    def load_checkpoint(self, path: str) -> None:
        self.restored_checkpoints.append(Path(path).stem)
        self.engine.weight, self.momentum = json.loads(Path(path).read_text())

    def terminate(self) -> None:
        self.has_ended = True


class TrainerProvider(Provider):
    """A provider that trains with a class of trainers, and keeps all that it has started."""

    def __init__(self, trainer_class: type[ReinforceJob] = OneWeightTrainer) -> None:
        super().__init__()
        self.reinforceable = True
        self.ReinforceJob = trainer_class
        self.trainers: list[Any] = []

    def __deepcopy__(self, memo: Any) -> "TrainerProvider":
        # Trainers of copies of the LM must be kept here, too.
        return self


class Person(NamedTuple):
    """A history, and a question about each of its sessions."""

    history: History
    questions: list[dspy.Example]


def person(name: str, sessions: int, turns: int = 4) -> Person:
    """Return a person who names new places and their colours in each session."""
    items: list[Session] = []
    for session in range(1, sessions + 1):
        session_turns = tuple(
            Turn(
                id=f"D{session}:{turn}",
                speaker=("Ann", "Bob")[turn % 2],
                text=f"place{session}x{turn} colour {name}c{session}{turn}",
            )
            for turn in range(1, turns + 1)
        )
        time = datetime(2024, 1 + session % 12, 3)
        items.append(Session(id=f"D{session}", time=time, turns=session_turns))
    history = History(id=name, items=tuple(items))

    questions: list[dspy.Example] = []
    for session in range(1, sessions + 1):
        example = dspy.Example(
            history=history,
            question=f"What is the place{session}x1 colour?",
            answer=f"{name}c{session}1",
            evidence_ids=(f"D{session}:1",),
            category="place",
            id=f"{name}:{session}",
        )
        questions.append(example.with_inputs("history", "question", "evidence_ids"))
    return Person(history, questions)


def names_the_colour(example: dspy.Example, prediction: dspy.Prediction) -> float:
    """The metric: 1 if the answer has the colour, else 0."""
    return float(example.answer in str(prediction.answer))


@dataclass
class World:
    """A policy and its trainers, and questions about people to train and to validate on."""

    program: MemoryProgram
    lm: MeteredLM
    engine: PolicyEngine
    provider: TrainerProvider
    train: list[dspy.Example]
    dev: list[dspy.Example]
    rows: list[Any] = field(default_factory=list)
    """The numbers of each step and each validation, as a training reports them."""

    @property
    def trainer(self) -> Any:
        """The trainer of the latest training."""
        return self.provider.trainers[-1]

    @property
    def first_history(self) -> History:
        """The history of the first training person."""
        return self.train[0].history

    def teleprompter(self, settings: Any, **options: Any) -> LoGoGRPO:
        """Return a teleprompter that scores answers by the colour they name."""
        options = {"on_row": self.rows.append, **options}
        return LoGoGRPO(names_the_colour, settings, **options)

    def run_training(self, settings: Any, valset: Any = None, **options: Any) -> LoGoGRPO:
        """Train the policy, and return the teleprompter."""
        teleprompter = self.teleprompter(settings, **options)
        with dspy.context(lm=self.lm):
            teleprompter.compile(self.program, trainset=self.train, valset=valset)
        return teleprompter


@pytest.fixture(scope="session")
def make_world() -> Callable[..., World]:
    """A function that returns a new world with a policy and a class of trainers."""

    def make(
        policy: Policy = diligent,
        sessions: int = 3,
        people: int = 2,
        trainer_class: type[ReinforceJob] = OneWeightTrainer,
        method: str = "memory-r2",
        **config: Any,
    ) -> World:
        engine = PolicyEngine(policy)
        provider = TrainerProvider(trainer_class)
        lm = MeteredLM(
            "seeded/test",
            engine=engine,
            provider=provider,
            cache=False,
            temperature=0.0,
            num_retries=0,
        )
        program = build(method, "memory-lookup", embedder("offline"), adapter="chat", **config)
        train: list[dspy.Example] = []
        for number in range(people):
            train.extend(person(f"user{number}", sessions).questions)
        # Nobody is trained on this person.
        dev = person("held", sessions).questions
        return World(program, lm, engine, provider, train, dev)

    return make
