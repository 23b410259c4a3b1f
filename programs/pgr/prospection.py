"""Prospection: search a memory with what the user will do next, not only with what they ask.

    q ── augment ──> q_A ── imagine ──> S0 ── probes ──> R ── refine ──> S1 ── probes ──> R ... ── summarize
         Eq. 2            Eq. 3              Eq. 4            Eq. 5           Eq. 6

A query is first shown with the facts closest to it, or said again with them (`_augmented`), then turned into a tree or
a chain of next steps (`imagine`). Every step is a probe; all probes of a round go to the index in one call. The facts
found make the next round of steps personal (`refine`), until a round finds fewer than `min_new` facts that were not
known.

Critical path: 1 call to imagine, 1 per round, 1 to summarize, as the paper's Table 7 counts them (with 1 to answer);
`augment="rewrite"` takes 1 more where something is close enough to the query. No round and no summary where nothing was
found: there is nothing to personalise by.

Limits: the thresholds .3 and .6 are cosines of text-embedding-3-small; `thresholds` has those of the embedders that run
here. Over BM25 scores they let nearly everything through; over turn RAG with an embedding model they are its cosines.
Malformed output costs a round, never the answer.

Source: Chopra et al., "Thinking Ahead: Prospection-Guided Retrieval of Memory with Language Models", Algorithm 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from ...errors import UserError
from ...records import Context, Hit, format_time, one_line
from ...signatures.pgr import (
    AugmentQuery,
    ImagineChain,
    ImagineTree,
    RefineChain,
    RefineTree,
    Step,
    SummarizeProspection,
)
from ...signatures.pgr_examples import chain_examples, refined_chain_examples, refined_tree_examples, tree_examples
from ..part import Part
from ..predictor import predictor
from .tree import repaired

Search = Callable[[Sequence[str], int, float], list[list[Hit]]]
"""Searches a memory: queries, most hits per query, lowest score; one list of hits per query."""
NOTE = "prospection"
"""The note of a context that holds the summary."""
STRATEGIES, AUGMENTS = ("tree", "chain"), ("append", "rewrite", "none")


class Prospection(Part):
    """The retrieval policy; it works over any search.

    Args:
        strategy: "tree" (PGR-TOT) or "chain" (PGR-COT).
        k: Facts per probe.
        min_score: Lowest score of a probe's hit (tau).
        augment: How the query is augmented: "append" shows the facts beside it in phase 1 (the paper's prompts, and the
            calls that its Table 7 counts), "rewrite" has the model say it again (Eq. 2), or "none".
        augment_k: Facts that the augmentation sees at most (the paper gives no number).
        augment_score: Lowest score of those facts (tau_o).
        min_new: The loop ends with a round that finds fewer new facts (delta).
        iterations: Most rounds of refinement (I_max); 0 is the paper's "base".
        summary: Whether the context ends with a prospection summary.

    Raises:
        UserError: A setting has no such value.
    """

    def __init__(
        self,
        strategy: str = "tree",
        k: int = 5,
        min_score: float = 0.3,
        augment: str = "append",
        augment_k: int = 5,
        augment_score: float = 0.6,
        min_new: int = 5,
        iterations: int = 10,
        summary: bool = True,
    ) -> None:
        super().__init__()
        for name, value, values in (("strategy", strategy, STRATEGIES), ("augment", augment, AUGMENTS)):
            if value not in values:
                raise UserError(f"{name} = {value!r} is none of {', '.join(values)}")
        for name, number, least in (("k", k, 1), ("min_new", min_new, 1), ("iterations", iterations, 0)):
            if number < least:
                raise UserError(f"{name} = {number} is less than {least}")
        self.strategy = strategy
        self.k = k
        self.min_score = min_score
        self.augment = augment
        self.augment_k = augment_k
        self.augment_score = augment_score
        self.min_new = min_new
        self.iterations = iterations
        self.summary = summary
        tree = strategy == "tree"
        # Only what the settings use, so that an optimizer does not tune unused prompts.
        self.imagine = predictor(ImagineTree if tree else ImagineChain)
        self.imagine.demos = list(tree_examples() if tree else chain_examples())
        if iterations:
            self.refine = predictor(RefineTree if tree else RefineChain)
            self.refine.demos = list(refined_tree_examples() if tree else refined_chain_examples())
        if augment == "rewrite":
            self.rewrite = predictor(AugmentQuery)
        if summary:
            self.summarize = predictor(SummarizeProspection)

    def recall(self, search: Search, question: str, date: datetime | str | None = None) -> Context:
        """Retrieves what bears on a query and on what follows from it.

        Args:
            search: Searches the memory, without a language model.
            question: The query.
            date: When it is asked, if known.

        Returns:
            The facts in the order in which they were found, those of one round best first; the summary in the note
            "prospection"; in `counts` the LM calls, rounds, probes, facts (of them `first` in phase 1 and `new` in
            phase 2), outputs that were `malformed` (no steps in them) and trees that were `repaired`.
        """
        walk = _Walk(search, self.k, self.min_score)
        when = format_time(date) if isinstance(date, datetime) else date or "unknown"
        asked, known = self._augmented(walk, question)
        steps = self._steps(walk, self.imagine, date=when, question=asked, known_facts=known)
        walk.probe([question, *map(probe, steps)])
        walk.counts["first"] = len(walk.found)
        rounds = [steps]
        for _ in range(self.iterations):
            if not walk.found:
                break
            so_far: dict[str, Any] = {f"initial_{self._field}": rounds[-1], "personal_context": walk.text()}
            steps = self._steps(walk, self.refine, date=when, question=asked, **so_far)
            if not steps:
                break
            walk.counts["rounds"] += 1
            rounds.append(steps)
            if walk.probe([probe(step) for step in steps]) < self.min_new:
                break
        summary = self._summary(walk, rounds, when, question)
        return walk.context(summary)

    @property
    def _field(self) -> str:
        return "tree" if self.strategy == "tree" else "steps"

    def _augmented(self, walk: _Walk, question: str) -> tuple[str, str]:
        """Eq. 2: the query, said again or not, and the facts that phase 1 is shown with it.

        Phase 2 has such facts in its personal context. A query with no fact close to it is unchanged.
        """
        if self.augment == "none":
            return question, ""
        close = walk.search([question], self.augment_k, self.augment_score)[0]
        if not close or self.augment == "append":
            return question, _lines(close)
        said = walk.ask(self.rewrite, known_facts=_lines(close), question=question)
        return str(said.augmented_query or "").strip() or question if said else question, ""

    def _steps(self, walk: _Walk, prompt: dspy.Predict, **inputs: Any) -> list[Step]:
        """One imagined future, its tree repaired; empty where the model gave none."""
        said = walk.ask(prompt, **inputs)
        if said is None:
            return []
        name = self._field if prompt is self.imagine else f"updated_{self._field}"
        nodes: list[Any] = said[name] or []
        if self.strategy == "tree":
            steps, defects = repaired(nodes)
            walk.counts["repaired"] += bool(defects)
        else:
            steps = [step for step in nodes if step.action.strip()]
        walk.counts["malformed"] += not steps
        return list(steps)

    def _summary(self, walk: _Walk, rounds: list[list[Step]], when: str, question: str) -> str:
        if not self.summary or not walk.found or not any(rounds):
            return ""
        imagined = "\n".join(f"round {n}:\n{_outline(steps)}" for n, steps in enumerate(rounds) if steps)
        said = walk.ask(self.summarize, date=when, imagined=imagined, personal_context=walk.text(), question=question)
        return " ".join(str(said.prospection_summary or "").split()) if said else ""


@dataclass
class _Walk:
    """What one recall has found and spent so far."""

    search: Search
    k: int
    min_score: float
    found: dict[str, Hit] = field(default_factory=dict[str, Hit])
    counts: Counter[str] = field(default_factory=Counter[str])

    def ask(self, prompt: dspy.Predict, **inputs: Any) -> dspy.Prediction | None:
        self.counts["calls"] += 1
        try:
            return prompt(**inputs)
        except AdapterParseError:
            self.counts["malformed"] += 1
            return None

    def probe(self, probes: Sequence[str]) -> int:
        """Searches with all probes at once and counts the new facts (Eq. 6)."""
        probes = list(dict.fromkeys(probes))
        self.counts["probes"] += len(probes)
        best: dict[str, Hit] = {}
        for hit in (hit for hits in self.search(probes, self.k, self.min_score) for hit in hits):
            if hit.id not in self.found and (hit.id not in best or hit.score > best[hit.id].score):
                best[hit.id] = hit
        self.found.update((hit.id, hit) for hit in sorted(best.values(), key=lambda hit: -hit.score))
        return len(best)

    def text(self) -> str:
        return _lines(self.found.values())

    def context(self, summary: str) -> Context:
        names = ("calls", "rounds", "probes", "first", "malformed", "repaired")
        facts = {"facts": len(self.found), "new": len(self.found) - self.counts["first"]}
        counts = {**facts, **{name: self.counts[name] for name in names}}
        return Context(hits=tuple(self.found.values()), notes={NOTE: summary} if summary else {}, counts=counts)


def probe(step: Step) -> str:
    """What the memory is searched with for a step."""
    parts = [part for part in (step.action.strip(), step.constraints.strip()) if part]
    return ": ".join(parts)


def _outline(steps: Sequence[Step]) -> str:
    return "\n".join(one_line(f"- {probe(step)}") for step in steps)


def _lines(hits: Iterable[Hit]) -> str:
    return "\n".join(hit.said for hit in hits)
