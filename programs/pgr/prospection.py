"""Prospection: search a memory with what the user will do next, not only with what they ask.

The retrieval policy of PGR (section 3.3, Eq. 1 and Algorithm 1), which works over any search:

    q ── augment ──> q_A ── imagine ──> S^0 ── search with q and all steps ──> R        (Eq. 2 to 4)
    R, S^(i-1) ── refine ──> S^i ── search with all steps ──> new facts, added to R     (Eq. 5, 6)

Refinement ends with a round that retrieves fewer than delta new facts, or after I_max rounds. Then
the model summarizes how its imagination led to the facts.

| in the paper   | here                                                                     |
|----------------|--------------------------------------------------------------------------|
| q, q_A         | `query`, `augmented_query`                                               |
| phi(x; M, ...) | `Search`: top K facts above a lowest score                               |
| Theta          | K is the setting `k`, tau is `min_score`                                 |
| Theta_o        | K_o is the setting `augment_k`, tau_o is `augment_score`                 |
| R              | `Retrieval.facts`                                                        |
| S^0, S^1, ...  | `Retrieval.sequences`, each a list of steps: a chain (COT) or tree (TOT) |
| Delta^i        | what `Retrieval.add_facts` finds; it returns their number                |
| delta, I_max   | the settings `min_new` and `iterations`                                  |

Critical path: one call imagines, one refines per round, and one summarizes (Table 7). There are
none of the last two where nothing was retrieved. `augment="rewrite"` takes one more where a fact is
close enough. Where an answer is malformed, or the endpoint refuses the prompt, the recall goes on
without that step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

import dspy
from pydantic import Field

from ...memory.tuning_range import TuningRange
from ...records import Context, Hit, format_time
from ...signatures.pgr import (
    AugmentQuery,
    ImagineChain,
    ImagineTree,
    RefineChain,
    RefineTree,
    Step,
    SummarizeProspection,
)
from ...signatures.pgr_examples import (
    chain_examples,
    refined_chain_examples,
    refined_tree_examples,
    tree_examples,
)
from ...text import one_line
from .._component import Component
from .._relative_dates import resolve_line_dates
from ..predictor import predictor
from ..settings import EntryCount, Settings
from .tree import repair_tree

Search = Callable[[Sequence[str], int, float], list[list[Hit]]]
"""The retrieval function phi(x; M, Theta) of a memory M, for several texts x at once.

Its arguments are the texts, the most hits per text (K), and the lowest score of a hit (tau). It
returns one list of hits per text, best first.
"""

NOTE = "prospection"
"""The note of a context that holds the summary."""

UNKNOWN_DATE = "unknown"
"""What prompts show as the date of a query that has none."""


class ProspectionSettings(Settings):
    """What can be set of the retrieval policy (section 3.3).

    Defaults are those of section 5.1, but for `iterations`.
    """

    strategy: Literal["tree", "chain"] = Field(
        default="tree", description="form of the imagined steps (PGR-TOT, PGR-COT in Table 3)"
    )
    k: EntryCount = Field(
        default=5, description="facts per search; the query and each step search once (K)"
    )
    min_score: Annotated[float, TuningRange(0, 0.9)] = Field(
        default=0.3, description="lowest score of a fact that a search finds (tau)"
    )
    augment: Literal["append", "rewrite", "none"] = Field(
        default="append",
        description="what is done with the facts nearest to the query before the first steps: "
        "append puts them beside it (Table 7), rewrite lets the model rewrite it with them (Eq. 2)",
    )
    augment_k: EntryCount = Field(
        default=5,
        description="most facts for `augment`; the paper has no number",
    )
    augment_score: Annotated[float, TuningRange(0, 0.9)] = Field(
        default=0.6, description="lowest score of facts for `augment` (tau_o)"
    )
    min_new: Annotated[int, TuningRange(1, 10)] = Field(
        default=5,
        ge=1,
        description="refinement ends after a round that finds fewer new facts (delta)",
    )
    iterations: Annotated[int, TuningRange(1, 10)] = Field(
        default=3,
        ge=0,
        description="most rounds of refinement (I_max; 10 on the paper's benchmarks); 0: none",
    )
    summary: bool = Field(
        default=True,
        description="whether the context ends with a summary of how the steps led to the facts "
        "(Table 5)",
    )


class AugmentedQuery(NamedTuple):
    """What phases 1 and 2 are asked with.

    Only one of the two holds the facts close to the query: a query that was rewritten with them
    needs no facts beside it, and a query that gets facts beside it stays as it is.
    """

    text: str
    """The augmented query q_A."""
    known_facts: str = ""
    """Facts that phase 1 is shown beside the query, a line each. Phase 2 has them in R."""


class Prospection(Component):
    """Retrieve facts with imagined next steps (Algorithm 1), over any search."""

    settings: ProspectionSettings

    def __init__(self, settings: ProspectionSettings) -> None:
        super().__init__(settings)
        # Only the prompts that the settings use, so that an optimizer tunes no other.
        if settings.strategy == "tree":
            self._sequence_field = "tree"
            self.imagine = predictor(ImagineTree)
            self.imagine.demos = tree_examples()
        else:
            self._sequence_field = "steps"
            self.imagine = predictor(ImagineChain)
            self.imagine.demos = chain_examples()

        if settings.iterations:
            self._add_refinement()
        if settings.augment == "rewrite":
            self.rewrite = predictor(AugmentQuery)
        if settings.summary:
            self.summarize = predictor(SummarizeProspection)

    def _add_refinement(self) -> None:
        """Make the predictor that revises imagined steps; its demos are worked examples."""
        if self.settings.strategy == "tree":
            self.refine = predictor(RefineTree)
            self.refine.demos = refined_tree_examples()
        else:
            self.refine = predictor(RefineChain)
            self.refine.demos = refined_chain_examples()

    def recall(self, search: Search, query: str, date: datetime | str | None = None) -> Context:
        """Let the model imagine the user's next steps, and search the memory with them.

        Args:
            search: Searches the memory, without a language model.
            query: What the user asks.
            date: When it is asked: a time, or a text for prompts.

        Returns:
            A context with the retrieved facts: first those of the first search, then the new facts
            of each later search, the best of each search first. Its note "prospection" summarizes
            how the steps led to them; for `counts` see `Retrieval.counts` (Algorithm 1).
        """
        # `retrieval` collects all steps and facts.
        retrieval = Retrieval(search, query, _shown_date(date))

        # The augmented query is the query with facts close to it, from which the model imagines.
        augmented_query = self._augment_query(retrieval)
        self._imagine_and_search(retrieval, augmented_query)
        self._revise_and_search(retrieval, augmented_query)

        notes: dict[str, str] = {}
        summary = self._summarize(retrieval)
        if summary:
            notes[NOTE] = summary
        return Context(hits=tuple(retrieval.facts.values()), notes=notes, counts=retrieval.counts())

    def _augment_query(self, retrieval: Retrieval) -> AugmentedQuery:
        """Return the query together with facts close to it, which help to imagine the next steps.

        By the setting `augment`, the facts stand beside the query ("append"), or the model rewrites
        the query with them ("rewrite"). Without close facts the query stays as it is (Eq. 2).
        """
        query = retrieval.query
        settings = self.settings
        if settings.augment == "none":
            return AugmentedQuery(query)

        hits_per_query = retrieval.search([query], settings.augment_k, settings.augment_score)
        close_facts = hits_per_query[0]
        if not close_facts:
            return AugmentedQuery(query)

        fact_lines = self._fact_lines(close_facts)
        if settings.augment == "append":
            return AugmentedQuery(query, known_facts=fact_lines)

        prediction = self._ask(retrieval, self.rewrite, known_facts=fact_lines, question=query)
        if prediction is None:
            return AugmentedQuery(query)
        rewritten_query = str(prediction.augmented_query or "").strip()
        return AugmentedQuery(rewritten_query or query)

    def _imagine_and_search(self, retrieval: Retrieval, augmented_query: AugmentedQuery) -> None:
        """Let the model imagine the user's next steps, and search with the query and every step.

        The steps and the facts that are retrieved are added to `retrieval` (phase 1).
        """
        # Eq. 3: imagine the first sequence of steps.
        prediction = self._ask(
            retrieval,
            self.imagine,
            date=retrieval.date,
            question=augmented_query.text,
            known_facts=augmented_query.known_facts,
        )
        steps = self._steps_of(retrieval, prediction, self._sequence_field)
        retrieval.sequences.append(steps)

        # Eq. 4: search with the query and the steps.
        sub_queries = [retrieval.query]
        sub_queries.extend(sub_query(step) for step in steps)
        retrieval.add_facts(sub_queries, self.settings.k, self.settings.min_score)
        retrieval.first_count = len(retrieval.facts)

    def _revise_and_search(self, retrieval: Retrieval, augmented_query: AugmentedQuery) -> None:
        """Let the model revise its steps in the light of the facts so far, and search with them.

        This is repeated until the model gives no usable steps, a search retrieves too few new
        facts, or all rounds are done. Steps and facts are added to `retrieval` (phase 2).
        """
        for _ in range(self.settings.iterations):
            if not retrieval.facts:  # there is nothing to revise the steps by
                return

            # Eq. 5: revise the steps. The prompt for trees has the input "initial_tree" and the
            # output "updated_tree"; for chains these are "initial_steps" and "updated_steps".
            last_steps: dict[str, Any] = {
                f"initial_{self._sequence_field}": retrieval.sequences[-1],
            }
            prediction = self._ask(
                retrieval,
                self.refine,
                date=retrieval.date,
                question=augmented_query.text,
                **last_steps,
                personal_context=self._fact_lines(retrieval.facts.values()),
            )
            steps = self._steps_of(retrieval, prediction, f"updated_{self._sequence_field}")
            if not steps:
                return
            retrieval.sequences.append(steps)

            # Eq. 6: search with the revised steps.
            sub_queries = [sub_query(step) for step in steps]
            new_count = retrieval.add_facts(sub_queries, self.settings.k, self.settings.min_score)
            if new_count < self.settings.min_new:
                return

    def _steps_of(
        self, retrieval: Retrieval, prediction: dspy.Prediction | None, field: str
    ) -> list[Step]:
        """Return the usable steps of a model's answer; steps without an action are left out.

        Args:
            retrieval: Counts the trees that were repaired, and the answers without usable steps.
            prediction: The answer; None if no answer could be read.
            field: The field of the answer that holds the steps.
        """
        if prediction is None:
            return []

        answered_steps: list[Any] = prediction[field] or []
        steps: list[Step]
        if self.settings.strategy == "tree":
            # The links between the steps may be broken. A valid tree comes back unchanged.
            steps = list(repair_tree(answered_steps))
            if steps != answered_steps:
                retrieval.repaired_count += 1
        else:
            steps = [step for step in answered_steps if step.action.strip()]

        if not steps:
            retrieval.malformed_count += 1
        return steps

    def _ask(
        self, retrieval: Retrieval, prompt: dspy.Predict, **inputs: Any
    ) -> dspy.Prediction | None:
        """Call the model with a prompt, and count the call in `retrieval`.

        Returns:
            The answer; None if the prompt was refused or the answer stays unreadable, which is
            counted, too.
        """
        retrieval.call_count += 1
        prediction = self.try_call(prompt, **inputs)
        if prediction is None:
            retrieval.malformed_count += 1
        return prediction

    def _summarize(self, retrieval: Retrieval) -> str:
        """Let the model summarize how the imagined steps led to the retrieved facts.

        Returns:
            The summary; "" if it is switched off, if there are no steps or no facts, or if no
            answer can be read.
        """
        has_steps = any(retrieval.sequences)
        if not self.settings.summary or not retrieval.facts or not has_steps:
            return ""

        prediction = self._ask(
            retrieval,
            self.summarize,
            date=retrieval.date,
            imagined=_outline(retrieval.sequences),
            personal_context=self._fact_lines(retrieval.facts.values()),
            question=retrieval.query,
        )
        if prediction is None:
            return ""
        return one_line(prediction.prospection_summary)

    def _fact_lines(self, facts: Iterable[Hit]) -> str:
        """Return facts as prompts show them, a line each, with their dates.

        If relative dates are to be resolved, "yesterday" in a fact gets its date beside it.
        """
        lines: list[str] = []
        for fact in facts:
            shown_fact = resolve_line_dates(fact) if self.resolve_dates else fact
            lines.append(shown_fact.dated_text)
        return "\n".join(lines)


class Retrieval:
    """What Algorithm 1 has imagined and retrieved for one query, and what that took.

    Args:
        search: Searches the memory.
        query: What the user asks, q.
        date: When it is asked, as prompts show it.
    """

    def __init__(self, search: Search, query: str, date: str) -> None:
        self.search = search
        self.query = query
        self.date = date
        self.facts: dict[str, Hit] = {}
        """The accumulated facts R by id, in the order in which they were retrieved."""
        self.sequences: list[list[Step]] = []
        """S^0, S^1, ...: the steps of phase 1, and of each round of phase 2."""
        self.call_count = 0
        """Calls of the language model."""
        self.sub_query_count = 0
        """Texts that the memory was searched with for R."""
        self.first_count = 0
        """Facts that phase 1 retrieved."""
        self.malformed_count = 0
        """Prompts that were refused, and answers that were unreadable or had no steps."""
        self.repaired_count = 0
        """Trees that had to be repaired."""

    def add_facts(self, sub_queries: Sequence[str], k: int, min_score: float) -> int:
        """Search the memory with several texts at once, and add the facts that are new.

        Args:
            sub_queries: The texts; equal texts are searched once.
            k: Most facts per text.
            min_score: Lowest score of a fact.

        Returns:
            How many facts are new (Eq. 4 and 6).
        """
        distinct_sub_queries = list(dict.fromkeys(sub_queries))
        self.sub_query_count += len(distinct_sub_queries)

        new_facts: dict[str, Hit] = {}
        for hits in self.search(distinct_sub_queries, k, min_score):
            for hit in hits:
                if hit.id in self.facts:
                    continue
                # Several texts may retrieve the same fact; its best score counts.
                best_hit = new_facts.get(hit.id)
                if best_hit is None or hit.score > best_hit.score:
                    new_facts[hit.id] = hit

        for hit in sorted(new_facts.values(), key=_score, reverse=True):
            self.facts[hit.id] = hit
        return len(new_facts)

    def counts(self) -> dict[str, int]:
        """Return counts of what was retrieved and what it took, for the context of an answer.

        "facts" is the sum of "first" and "new": facts that the first steps retrieved, and facts
        that later rounds added. "probes" are the texts that the memory was searched with.
        """
        # The first sequence of steps is imagined; each later one is the result of a round.
        round_count = len(self.sequences) - 1
        return {
            "facts": len(self.facts),
            "new": len(self.facts) - self.first_count,
            "calls": self.call_count,
            "rounds": round_count,
            "probes": self.sub_query_count,
            "first": self.first_count,
            "malformed": self.malformed_count,
            "repaired": self.repaired_count,
        }


def sub_query(step: Step) -> str:
    """Return the text that the memory is searched with for an imagined step.

    It is the action and its constraints: "book a table: vegetarian, on Friday".
    """
    action = step.action.strip()
    constraints = step.constraints.strip()
    if action and constraints:
        return f"{action}: {constraints}"
    return action or constraints


def _score(hit: Hit) -> float:
    return hit.score


def _shown_date(date: datetime | str | None) -> str:
    """Return a date as prompts show it; "unknown" if there is none."""
    if isinstance(date, datetime):
        return format_time(date)
    return date or UNKNOWN_DATE


def _outline(sequences: Sequence[Sequence[Step]]) -> str:
    """Return the imagined steps as the summary's prompt shows them, round by round.

    A round begins with its number, "round 0:", and has a step a line. Round 0 is the first
    imagination; rounds without steps are left out.
    """
    blocks: list[str] = []
    for number, steps in enumerate(sequences):
        if steps:
            lines = [one_line(f"- {sub_query(step)}") for step in steps]
            blocks.append("\n".join([f"round {number}:", *lines]))
    return "\n".join(blocks)
