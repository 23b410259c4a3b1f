"""A policy without weights, its trainers, and a tiny world: people who name places and their colours."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.clients.provider import Provider, ReinforceJob
from mempiler import History, MemoryProgram, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.engines.local.trainer import StepResult
from mempiler.engines.metered_lm import MeteredLM
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.optimizers.logo_grpo import LoGoGRPO

from tests.conftest import chat_fields as fields
from tests.conftest import facts_of, lines_of

Reply = Callable[[str, str, random.Random], str]
"""From the name of the first output field, the user message and a source of chance to a raw completion."""


def diligent(kind: str, text: str, rng: random.Random, share: float = 0.5) -> str:
    """Extracts every line; inserts each fact with that chance."""
    if kind == "facts":
        return fields(facts=lines_of(text))
    if kind == "operations":
        kept = [fact for fact in facts_of(text) if rng.random() < share]
        return fields(
            operations=[
                {"op": "INSERT", "content": f["fact"], "turn_id": f["turn_id"]} for f in kept
            ]
        )
    return fields(reasoning="", answer=text)


class SeededEngine(OfflineEngine):
    """Answers by `answer`; the chance comes from the request's seed and prompt, as in the local engine."""

    supports_response_schema = False

    def __init__(self, answer: Reply) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[tuple[str, str, float]] = []
        self.weight = 0.0

    def reply(self, request: Any) -> str:
        kind = re.search(r"Your output fields are:\s*1\. `(\w+)`", str(request.system))
        text = "\n".join(message.text for message in request.messages if message.role == "user")
        name, heat = kind.group(1) if kind else "", request.config.temperature or 0.0
        self.asked.append((name, text, heat))
        return self.answer(
            name, text, random.Random(f"{request.config.seed} {text}" if heat else text)
        )


class WeighedJob(ReinforceJob):
    """A trainer like the local one: one weight, moved by what it was sent, with momentum and a reference."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.begun: list[float] = []
        self.restored: list[str] = []
        self.ended = False

    def initialize(self) -> None:
        self.moment = 0.0
        self.begun.append(self.engine.weight)

    @property
    def engine(self) -> SeededEngine:
        return self.lm.engine  # pyright: ignore[reportReturnType]

    def step(self, train_data: Any, train_data_format: Any = None) -> StepResult:
        self.moment *= 0.5
        for group in train_data:
            for n, item in enumerate(group["group"]):
                self.moment += (n + 1) * item["reward"] + 0.001 * len(item["completion"]["content"])
        self.engine.weight += self.moment - 0.1 * (self.engine.weight - self.begun[-1])
        return StepResult(loss=self.engine.weight)

    def save_checkpoint(self, checkpoint_name: str) -> None:
        path = Path(self.train_kwargs["output_dir"]) / f"{checkpoint_name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([self.engine.weight, self.moment]))
        self.checkpoints[checkpoint_name] = str(path)

    def load_checkpoint(self, path: str) -> None:
        self.restored.append(Path(path).stem)
        self.engine.weight, self.moment = json.loads(Path(path).read_text())

    def terminate(self) -> None:
        self.ended = True


class WeighedProvider(Provider):
    def __init__(self, job: type[ReinforceJob] = WeighedJob) -> None:
        super().__init__()
        self.reinforceable = True
        self.jobs: list[Any] = []

        class Kept(job):
            def __init__(kept, **kwargs: Any) -> None:  # noqa: N805
                super().__init__(**kwargs)
                self.jobs.append(kept)

        self.ReinforceJob = Kept


@dataclass
class World:
    """People who say one place per session, questions about them, a policy and its trainer."""

    program: MemoryProgram
    lm: MeteredLM
    engine: SeededEngine
    provider: WeighedProvider
    train: list[dspy.Example]
    dev: list[dspy.Example]
    rows: list[Any] = field(default_factory=list)

    @property
    def job(self) -> Any:
        """The trainer of the latest compile."""
        return self.provider.jobs[-1]

    def teleprompter(self, settings: Any, **more: Any) -> LoGoGRPO:
        """A LoGo-GRPO that scores answers by the colour they name."""
        return LoGoGRPO(names_the_colour, settings, **{"on_row": self.rows.append, **more})

    def compile(self, settings: Any, valset: Any = None, **more: Any) -> LoGoGRPO:
        """Trains and returns the teleprompter."""
        teleprompter = self.teleprompter(settings, **more)
        with dspy.context(lm=self.lm):
            teleprompter.compile(self.program, trainset=self.train, valset=valset)
        return teleprompter


def names_the_colour(example: dspy.Example, prediction: dspy.Prediction) -> float:
    return float(example.answer in str(prediction.answer))


def person(name: str, sessions: int, turns: int = 4) -> tuple[History, list[dspy.Example]]:
    """A history of one new place per session, and a question about each."""
    items = tuple(
        Session(
            id=f"D{s}",
            time=datetime(2024, 1 + s % 12, 3),
            turns=tuple(
                Turn(
                    id=f"D{s}:{t}",
                    speaker=("Ann", "Bob")[t % 2],
                    text=f"place{s}x{t} colour {name}c{s}{t}",
                )
                for t in range(1, turns + 1)
            ),
        )
        for s in range(1, sessions + 1)
    )
    history = History(id=name, items=items)
    asked = [
        dspy.Example(
            history=history,
            question=f"What is the place{s}x1 colour?",
            answer=f"{name}c{s}1",
            evidence_ids=(f"D{s}:1",),
            category="place",
            id=f"{name}:{s}",
        ).with_inputs("history", "question", "evidence_ids")
        for s in range(1, sessions + 1)
    ]
    return history, asked


@pytest.fixture(scope="session")
def world() -> Callable[..., World]:
    """Makes a world: `world(reply, sessions=3, people=2, job=..., method="memory-r2")`."""

    def make(
        reply: Reply = diligent,
        sessions: int = 3,
        people: int = 2,
        job: type[ReinforceJob] = WeighedJob,
        method: str = "memory-r2",
        **config: Any,
    ) -> World:
        engine, provider = SeededEngine(reply), WeighedProvider(job)
        lm = MeteredLM(
            "seeded/test",
            engine=engine,
            provider=provider,
            cache=False,
            temperature=0.0,
            num_retries=0,
        )
        program = build(method, "memory-lookup", embedder("offline"), adapter="chat", **config)
        train = [each for n in range(people) for each in person(f"user{n}", sessions)[1]]
        return World(program, lm, engine, provider, train, person("held", sessions)[1])

    return make
