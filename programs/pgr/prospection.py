"""Prospection: search a memory with what the user will do next, not only with what they ask (PGR, Algorithm 1).

Critical path: 1 call to imagine, 1 per round, 1 to summarize (Table 7), none of the last two where nothing was found;
`augment="rewrite"` takes 1 more where something is close enough. Malformed output costs a round, and so does a prompt
that the endpoint refuses.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import dspy
from pydantic import Field

from ...records import Context, Hit, format_time
from ...signatures.pgr import (
    AugmentQuery,
    ImagineChain,
    ImagineTree,
    RefineChain,
    RefineTree,
    Step,
    SummarizeProspection,
    TreeNode,
)
from ...signatures.pgr_examples import (
    chain_examples,
    refined_chain_examples,
    refined_tree_examples,
    tree_examples,
)
from ...text import one_line
from ..component import Component
from ..settings import EntryCount, Settings
from ..predictor import predictor
from ..relative_dates import resolve_line_dates

Search = Callable[[Sequence[str], int, float], list[list[Hit]]]
"""Searches a memory: queries, most hits per query, lowest score; one list of hits per query."""
NOTE = "prospection"
"""The note of a context that holds the summary."""


class ProspectionSettings(Settings):
    """What can be set of the retrieval policy (section 3.3; defaults of section 5.1, but for `iterations`)."""

    strategy: Literal["tree", "chain"] = Field(default="tree", description="what is imagined: PGR-TOT or PGR-COT (Table 3)")
    k: EntryCount = Field(default=5, description="facts per probe (K)")
    min_score: float = Field(default=0.3, description="lowest score of a probe's hit (tau)")
    augment: Literal["append", "rewrite", "none"] = Field(
        default="append",
        description="facts beside the query (Table 7), the query said again with them (Eq. 2), or none",
    )
    augment_k: EntryCount = Field(default=5, description="most facts that the query is augmented with; the paper has no number")
    augment_score: float = Field(default=0.6, description="lowest score of those facts (tau_o)")
    min_new: int = Field(default=5, ge=1, description="the loop ends with a round that finds fewer new facts (delta)")
    iterations: int = Field(
        default=3,
        ge=0,
        description="most rounds of refinement (I_max; 10 on the paper's benchmarks); 0 is the base of Table 4",
    )
    summary: bool = Field(default=True, description="whether the context ends with a prospection summary (Table 5)")


class Prospection(Component):
    """The retrieval policy; it works over any search."""

    settings: ProspectionSettings

    def __init__(self, settings: ProspectionSettings) -> None:
        super().__init__(settings)
        tree = settings.strategy == "tree"
        self._field = "tree" if tree else "steps"
        # Only what the settings use, so that an optimizer does not tune unused prompts.
        self.imagine = predictor(ImagineTree if tree else ImagineChain)
        self.imagine.demos = list(tree_examples() if tree else chain_examples())
        if settings.iterations:
            self.refine = predictor(RefineTree if tree else RefineChain)
            self.refine.demos = list(refined_tree_examples() if tree else refined_chain_examples())
        if settings.augment == "rewrite":
            self.rewrite = predictor(AugmentQuery)
        if settings.summary:
            self.summarize = predictor(SummarizeProspection)

    def recall(self, search: Search, question: str, date: datetime | str | None = None) -> Context:
        """Retrieves what bears on a query and on what follows from it, by a search without a language model.

        Returns:
            The facts in the order in which they were found, those of one round best first; the summary in the note
            "prospection"; in `counts` the LM calls, rounds, probes, facts (of them `first` in phase 1 and `new` in
            phase 2), answers that were `malformed` (refused, unreadable, or without steps) and trees that were
            `repaired`, or completed.
        """
        walk = _Walk(search, self.settings.k, self.settings.min_score, self.resolve_dates)
        when = format_time(date) if isinstance(date, datetime) else date or "unknown"
        asked, known = self._augmented(walk, question)
        steps = self._steps(walk, self.imagine, date=when, question=asked, known_facts=known)
        walk.probe([question, *map(probe, steps)])
        walk.counts["first"] = len(walk.found)
        rounds = [steps]
        for _ in range(self.settings.iterations):
            if not walk.found:
                break
            so_far: dict[str, Any] = {f"initial_{self._field}": rounds[-1], "personal_context": walk.text()}
            steps = self._steps(walk, self.refine, date=when, question=asked, **so_far)
            if not steps:
                break
            walk.counts["rounds"] += 1
            rounds.append(steps)
            if walk.probe([probe(step) for step in steps]) < self.settings.min_new:
                break
        summary = self._summary(walk, rounds, when, question)
        return walk.context(summary)

    def _augmented(self, walk: _Walk, question: str) -> tuple[str, str]:
        """Eq. 2: the query, said again or not, and the facts that phase 1 is shown with it.

        Phase 2 has such facts in its personal context. A query with no fact close to it is unchanged.
        """
        given = self.settings
        if given.augment == "none":
            return question, ""
        close = walk.search([question], given.augment_k, given.augment_score)[0]
        if not close or given.augment == "append":
            return question, walk.lines(close)
        said = self._asked(walk, self.rewrite, known_facts=walk.lines(close), question=question)
        return str(said.augmented_query or "").strip() or question if said else question, ""

    def _steps(self, walk: _Walk, prompt: dspy.Predict, **inputs: Any) -> list[Step]:
        """One imagined future, its tree repaired; empty where the model gave none."""
        said = self._asked(walk, prompt, **inputs)
        if said is None:
            return []
        name = self._field if prompt is self.imagine else f"updated_{self._field}"
        nodes: list[Any] = said[name] or []
        if self.settings.strategy == "tree":
            steps = repaired(nodes)
            walk.counts["repaired"] += steps != nodes
        else:
            steps = [step for step in nodes if step.action.strip()]
        walk.counts["malformed"] += not steps
        return list(steps)

    def _asked(self, walk: _Walk, prompt: dspy.Predict, **inputs: Any) -> dspy.Prediction | None:
        """Ask a prompt and count the call; None where it was refused, or its answer cannot be read."""
        walk.counts["calls"] += 1
        prediction = self.try_call(prompt, **inputs)
        if prediction is None:
            walk.counts["malformed"] += 1
        return prediction

    def _summary(self, walk: _Walk, rounds: list[list[Step]], when: str, question: str) -> str:
        if not self.settings.summary or not walk.found or not any(rounds):
            return ""
        outlines = ("\n".join(one_line(f"- {probe(step)}") for step in steps) for steps in rounds)
        imagined = "\n".join(f"round {n}:\n{outline}" for n, outline in enumerate(outlines) if outline)
        said = self._asked(
            walk, self.summarize, date=when, imagined=imagined, personal_context=walk.text(), question=question
        )
        return one_line(said and said.prospection_summary)


@dataclass
class _Walk:
    search: Search
    k: int
    min_score: float
    resolve_dates: bool
    found: dict[str, Hit] = field(default_factory=dict[str, Hit])
    counts: Counter[str] = field(default_factory=Counter[str])

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
        """Return all facts found so far, as prompts show them."""
        return self.lines(self.found.values())

    def lines(self, hits: Iterable[Hit]) -> str:
        """Return hits as prompts show them, a line each."""
        if self.resolve_dates:
            hits = map(resolve_line_dates, hits)
        return "\n".join(hit.dated_text for hit in hits)

    def context(self, summary: str) -> Context:
        names = ("calls", "rounds", "probes", "first", "malformed", "repaired")
        facts = {"facts": len(self.found), "new": len(self.found) - self.counts["first"]}
        counts = {**facts, **{name: self.counts[name] for name in names}}
        return Context(hits=tuple(self.found.values()), notes={NOTE: summary} if summary else {}, counts=counts)


def probe(step: Step) -> str:
    """What the memory is searched with for a step."""
    parts = [part for part in (step.action.strip(), step.constraints.strip()) if part]
    return ": ".join(parts)


def repaired(nodes: Sequence[TreeNode]) -> list[TreeNode]:
    """A valid tree of all nodes with an action, for any output of the model; equal to a tree that is valid.

    It has one root, no cycle, unique ids, and parents and children in agreement. A node without a place becomes a child
    of the root.
    """
    named: dict[str, TreeNode] = {}
    taken = {node.action_id.strip() for node in nodes}
    unused = (id for n in itertools.count(1) if (id := f"A{n}") not in taken)
    for node in nodes:
        id = node.action_id.strip()
        if node.action.strip():
            named[id if id and id not in named else next(unused)] = node
    parents = {id: (node.parent or "").strip() or None for id, node in named.items()}
    root = next((id for id, parent in parents.items() if parent is None), next(iter(named), ""))
    claims = {child: id for id, node in reversed(named.items()) for child in node.children if child != id}
    for id, parent in parents.items():
        parents[id] = None if id == root else parent if parent in named else claims.get(id, root)
    for id in named:
        seen, at = set[str](), id
        while (above := parents[at]) is not None and at not in seen:
            seen.add(at)
            at = above
        if above is not None:
            parents[at] = root
    children = {id: [child for child, parent in parents.items() if parent == id] for id in named}
    return [
        node.model_copy(update={"action_id": id, "parent": parents[id], "children": children[id]})
        for id, node in named.items()
    ]
