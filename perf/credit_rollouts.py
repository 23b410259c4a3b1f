"""Many rollouts of Memory-R2 on memory-env at once, in lock step and without DSPy's machinery: for `credit.py`.

The extractions of a turn are sampled in advance, and rollouts draw among them; the manager is asked for all rollouts
together. What it sees, and what becomes of its answer, is Memory-R2's own code.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dspy.utils.exceptions import AdapterParseError
from mempiler.data.synthesis.memory_env import Conversation
from mempiler.engines.embedders import embedder
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.memory import FactMemory
from mempiler.programs.memory_r2.method import MemoryR2, _edit, _grounded
from mempiler.records import Turn
from mempiler.signatures.memory_r2 import ExtractFacts, Fact, ManageMemory, NewFact, StoredMemory

POOL = 8
"""Sampled extractions of each turn, among which rollouts draw."""


def turns_of(talk: Conversation) -> list[Turn]:
    """All turns of a conversation."""
    return [turn for item in talk.history.items for turn in item.turns]


@dataclass
class Path:
    """One rollout in the making."""

    talk: Conversation
    memory: FactMemory
    turn: int
    """The next turn, counted over the whole history."""
    stop: int
    rng: random.Random
    at: dict[int, FactMemory] = field(default_factory=dict)
    """The memory before each turn it has passed."""
    first: str | None = None
    """The answer to be used at the first turn instead of a sampled one."""
    facts: list[Fact] | None = None
    """The facts to be used at the first turn."""


class Policy:
    """The model as extractor and manager, asked in large batches."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model, self.seed = model, seed
        self.method = MemoryR2(embedder(), **MemoryR2.preset("memory-env"))
        self.adapter, self.pools, self.calls = CompactAdapter(), {}, 0
        self.prompts: dict[Any, tuple[list[int], list[str]]] = {}

    def encode(self, signature: Any, inputs: dict[str, Any]) -> list[int]:
        """Token ids of a prompt."""
        return self.model.encode(self.adapter.format(signature, [], inputs))

    def ask(self, prompts: Sequence[list[int]], batch: int = 256) -> list[str]:
        """Samples an answer to each prompt, prompts of like length together."""
        order = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))
        texts = [""] * len(prompts)
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            self.seed += 1
            samples = self.model.sample([prompts[n] for n in part], 1.0, 80, self.seed)
            for n, sample in zip(part, samples, strict=True):
                texts[n] = sample.text
        self.calls += len(prompts)
        return texts

    def learn(self, talks: Sequence[Conversation]) -> None:
        """Samples the extractions of every turn."""
        turns = [(talk.history.id, n, turn) for talk in talks for n, turn in enumerate(turns_of(talk))]
        asked = [(id, n, turn) for id, n, turn in turns for _ in range(POOL)]
        prompts = {turn: self.encode(ExtractFacts, {"dialogue": turn.line()}) for _, _, turn in turns}
        texts = self.ask([prompts[turn] for _, _, turn in asked])
        for (id, n, turn), text in zip(asked, texts, strict=True):
            facts = self.read(ExtractFacts, text) or []
            kept = [_grounded(fact, {turn.id}, [turn]) for fact in facts if fact.fact.strip()]
            self.pools.setdefault((id, n), []).append(kept)

    def read(self, signature: Any, text: str) -> Any:
        """The one output of an answer, or None."""
        try:
            return next(iter(self.adapter.parse(signature, text).values()))
        except AdapterParseError:
            return None

    def prompt(self, memory: FactMemory, facts: Sequence[Fact]) -> tuple[list[int], list[str]]:
        """What the manager sees, as token ids, and the ids it may touch; many rollouts come to the same memory."""
        key = tuple((e.id, e.speaker, e.content) for e in memory.facts), tuple((f.turn_id, f.fact) for f in facts)
        if key not in self.prompts:
            self.prompts[key] = self._prompt(memory, facts)
        return self.prompts[key]

    def _prompt(self, memory: FactMemory, facts: Sequence[Fact]) -> tuple[list[int], list[str]]:
        related = self.method.writer.relate(memory, facts)
        shown = {id for ids in related for id in ids}
        entries = [
            StoredMemory(memory_id=entry.id, speaker=entry.speaker, content=entry.content)
            for entry in memory.facts
            if entry.id in shown
        ]
        new = [NewFact(**f.model_dump(), related_memory_ids=ids) for f, ids in zip(facts, related, strict=True)]
        inputs = {"session_date": "unknown", "memories": entries, "new_facts": new}
        return self.encode(ManageMemory, inputs), sorted(shown)

    def apply(self, memory: FactMemory, facts: Sequence[Fact], shown: Sequence[str], text: str) -> FactMemory:
        """The memory after an answer; unchanged after one that cannot be read."""
        operations = self.read(ManageMemory, text)
        return memory if operations is None else memory.apply([_edit(o, facts) for o in operations], shown)

    def run(self, paths: Sequence[Path]) -> None:
        """Carries rollouts on until each stops, all at once."""
        while live := [path for path in paths if path.turn < path.stop]:
            rows = []
            for path in live:
                path.at[path.turn] = path.memory
                drawn = path.rng.choice(self.pools[path.talk.history.id, path.turn])
                facts, path.facts = (drawn if path.facts is None else path.facts), None
                path.turn += 1
                if facts:
                    rows.append((path, facts, *self.prompt(path.memory, facts)))
            fresh = [row for row in rows if row[0].first is None]
            texts = iter(self.ask([row[2] for row in fresh]))
            for path, facts, _, shown in rows:
                text, path.first = (next(texts) if path.first is None else path.first), None
                path.memory = self.apply(path.memory, facts, shown, text)
