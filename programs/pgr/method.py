"""PGR: prospection-guided retrieval, over a store of dated facts of its own or over any other method's memory.

    sessions ── every 3 ──> upsert ── every 50 new facts ──> consolidate ──> facts       (`PersonalFactWriter`)
    question ── Prospection over search ──> facts and a summary                          (`prospection`)

A session of more than ten exchanges is written in parts, each of which counts as one: no update has to read it whole.

`pgr+METHOD` takes the memory of any other method and calls nothing of it but `search`: all switches of the policy share
one written memory.

Critical path: one update per three sessions of the whole history, in order, and per fifty new facts one merge (its
groups at once); a question takes the calls of `Prospection` and one answer.

Source: Chopra et al., "Thinking Ahead: Prospection-Guided Retrieval of Memory with Language Models", section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from ...memory.edits import EntryEdits, amended_entry, is_as_written
from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...records import Context, Failure, Hit, Item, Query, Turn, format_time
from ...signatures.pgr import FactChange, KnownFact, MergeFacts, UpdateFacts
from ...signatures.pgr_examples import update_examples
from ..fallback import FEW
from ..embedders import offline_embedder
from ..method import Method, Policy
from ..reader import ANY_COSINE, EntryReader, Reader
from ..settings import EntryCount, SearchSettings, Settings
from ..writer import Writer
from ..predictor import predictor
from ..recording import record_failure
from ..threads import gather
from .memory import PersonalFact, PersonalMemory, ambiguous_updates, merge_groups
from .prospection import Prospection, ProspectionSettings


class FactSettings(Settings):
    """How facts are written (section 3.2)."""

    every: int = Field(default=3, ge=1, description="sessions per upsert; those that wait are written where the history ends")
    exchanges: int = Field(
        default=10, ge=1, description="most exchanges (a turn and its reply) that count as one session; a longer one is cut"
    )
    merge_after: int = Field(default=50, ge=1, description="new facts after which the memory is consolidated")
    merge_score: float = Field(default=0.8, ge=-1, le=1, description="lowest cosine of facts that may be merged")
    window_days: int = Field(default=7, ge=0, description="most days between the latest dates of facts that are merged")
    related: EntryCount = Field(default=40, description="most known facts an update is shown, those nearest to what was said")


_BENCHMARKS = ("memoryquest", "implexconv", "personamem-v2")
"""Those of the paper."""
_FACT_STORE_PRESETS = {name: {"hybrid": False} for name in _BENCHMARKS}
_POLICY_PRESETS = {name: {"iterations": 10} for name in _BENCHMARKS}
_PGR_PRESETS = {name: {"hybrid": False, "iterations": 10} for name in _BENCHMARKS}
"""The paper ranks by cosine, and refines up to ten times."""


class FactStoreSettings(SearchSettings, FactSettings):
    """What can be set of `FactStore`."""

    k: EntryCount = Field(default=20, description="facts recalled per query (K, Figure 3)")


class PGRSettings(SearchSettings, ProspectionSettings, FactSettings):
    """What can be set of `PGR`; its `min_score` and `augment_score` are cosines in any case."""


class PersonalFactWriter(Writer[PersonalMemory]):
    """Takes sessions in as dated facts; its embedder finds those that are alike."""

    Memory = PersonalMemory
    shows_entries = True
    longest_text = 1000
    """A fact is short: a longer text is asked for again, and does not come in."""

    settings: FactSettings

    def __init__(self, settings: FactSettings, embedder: Embedder) -> None:
        super().__init__(settings)
        self.embedder, self.indexes = embedder, IndexCache(embedder)
        self.update_facts = predictor(UpdateFacts)
        self.update_facts.demos = update_examples()
        self.merge = predictor(MergeFacts)

    def update(self, memory: PersonalMemory, item: Item, extraction: Any = None) -> PersonalMemory:
        for part in session_parts(item, self.settings.exchanges):
            memory = memory.replace(pending=(*memory.pending, part))
            if len(memory.pending) >= self.settings.every:
                memory = self._upserted(memory)
        return memory

    def finalize(self, memory: PersonalMemory) -> PersonalMemory:
        return self._upserted(memory) if memory.pending else memory

    def update_with_part(self, memory: PersonalMemory, part: Item) -> PersonalMemory:
        """Write a part of an item by itself: it does not wait for others."""
        return self._upserted(memory.replace(pending=(part,))).replace(pending=memory.pending)

    def _upserted(self, memory: PersonalMemory) -> PersonalMemory:
        said = [(session, turn) for session in memory.pending for turn in session.spoken]
        changes: list[FactChange] = []
        if said:
            known = self._near(memory, [turn for _, turn in said])
            lines = [turn.line(session.time) for session, turn in said]
            found = self.try_call(self.update_facts, existing_facts=known, dialogue="\n".join(lines))
            if found is None:
                after = memory.replace(pending=())
                for session in memory.pending:
                    after = after.mark_failed(session)
                return after
            # An update of a fact that was not shown is a new one.
            shown, new = {each.fact_id for each in known}, {"state": "add"}
            changes = [one if one.fact_id.strip() in shown else one.model_copy(update=new) for one in found.facts or []]
            for id, times in ambiguous_updates(changes).items():
                message = f"{times} updates of one answer name {id}; all were kept as new facts"
                record_failure(Failure(kind="parse", where="update_facts", message=message))
        memory = memory.upsert(changes, memory.pending)
        return self._consolidated(memory) if memory.fresh >= self.settings.merge_after else memory

    def _near(self, memory: PersonalMemory, turns: Sequence[Turn]) -> list[KnownFact]:
        """The known facts that an update may concern, oldest first: the nearest to any turn."""
        facts, most = memory.facts, self.settings.related
        if len(facts) > most:
            found = self.indexes.search(memory, [turn.content for turn in turns], most, ANY_COSINE)
            best = sorted((hit for hits in found for hit in hits), key=lambda hit: -hit.score)
            near = set(list(dict.fromkeys(hit.id for hit in best))[:most])
            facts = tuple(fact for fact in facts if fact.id in near)
        left = [(fact, amended_entry(fact, memory.entry)) for fact in facts]
        return [_shown(fact, entry.text) for fact, entry in left if entry is not None]

    def _consolidated(self, memory: PersonalMemory) -> PersonalMemory:
        """Merges what is alike and close in time; a group whose merge stays unparseable is unchanged.

        Facts that their user amended are merged with none.
        """
        facts = [fact for fact in memory.facts if is_as_written(fact, memory.entry)]
        vectors = self.embedder.embed([fact.info for fact in facts])
        groups = merge_groups(facts, vectors, self.settings.merge_score, self.settings.window_days)
        shown = {fact.id: _shown(fact, fact.info) for fact in facts}

        def merged(ids: Sequence[str]) -> Any:
            return self.try_call(self.merge, similar_facts=[shown[id] for id in ids])

        for ids, said in zip(groups, gather([lambda ids=ids: merged(ids) for ids in groups]), strict=True):
            new = said.merged_fact if said else None
            if new is not None:
                memory = memory.merge(ids, new.info, new.type, new.related_entities)
        return memory.replace(fresh=0)


class ProspectiveReader(Reader[PersonalMemory]):
    """Recalls by a policy over another reader's search."""

    def __init__(self, inner: Reader, policy: Prospection) -> None:
        super().__init__()
        self.inner = inner
        self.policy = policy
        self.hybrid = inner.hybrid

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.inner.search(memory, queries, k, min_score)

    def entries(self, memory: Any) -> Sequence[Entry]:
        return self.inner.entries(memory)

    def with_edits(self, memory: Any, edits: EntryEdits) -> Any:
        return self.inner.with_edits(memory, edits)

    def fallback(self, memory: Any, query: Query) -> Iterable[Hit]:
        """What is nearest to the query, below any threshold; then what the inner method shows where nothing is."""
        nearest = self.search(memory, [query.search_text], FEW, ANY_COSINE)[0]
        yield from nearest

        near_ids = {hit.id for hit in nearest}
        for hit in self.inner.fallback(memory, query):
            if hit.id not in near_ids:
                yield hit

    def recall(self, memory: Any, query: Query) -> Context:
        """What the policy finds; nothing, without a call, in an empty memory."""
        if memory == type(memory)():
            return Context()
        return self.policy.recall(
            lambda texts, k, low: self.search(memory, texts, k, low), query.search_text, query.date
        )


def session_parts(item: Item, exchanges: int) -> list[Item]:
    """Cut an item into parts of at most so many exchanges, each of two turns; a short one is its own only part.

    A question is not parted from its reply: where a cut would fall between them, both go to the later part.
    """
    turns = item.turns
    most_turns = 2 * exchanges
    # PersonaMem's histories open with a turn of the system.
    opener = next((turn.speaker for turn in turns if turn.speaker != "system"), "")

    parts: list[Item] = []
    start = 0
    while len(turns) - start > most_turns:
        end = start + most_turns
        cuts_an_exchange = turns[end - 1].speaker == opener and turns[end].speaker != opener
        if cuts_an_exchange:
            end -= 1
        parts.append(item.select_turns({turn.id for turn in turns[start:end]}))
        start = end

    if not parts:
        return [item]
    return [*parts, item.select_turns({turn.id for turn in turns[start:]})]


class FactStore(Method):
    """PGR's long-term memory (section 3.2), searched with the query alone: the query-only baseline of Figure 3."""

    Settings = FactStoreSettings
    embedder_use = "required"
    presets = _FACT_STORE_PRESETS

    def __init__(self, settings: FactStoreSettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or FactStoreSettings()
        embedder = embedder or offline_embedder()
        writer = PersonalFactWriter(settings.restrict_to(FactSettings), embedder)
        reader = EntryReader(settings.k, embedder=embedder, hybrid=settings.uses_fusion(embedder))
        super().__init__(writer, reader, embedder, settings)


class PGR(Method):
    """The paper's method: prospection over its own store of facts."""

    Settings = PGRSettings
    embedder_use = "required"
    presets = _PGR_PRESETS

    def __init__(self, settings: PGRSettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or PGRSettings()
        embedder = embedder or offline_embedder()
        writer = PersonalFactWriter(settings.restrict_to(FactSettings), embedder)
        facts = EntryReader(embedder=embedder, hybrid=settings.uses_fusion(embedder))
        policy = Prospection(settings.restrict_to(ProspectionSettings))
        super().__init__(writer, ProspectiveReader(facts, policy), embedder, settings)


class PGROver(Policy):
    """`pgr+METHOD`: the policy over another method's `search`. Settings of the inner method begin with `inner_`."""

    Settings = ProspectionSettings
    presets = _POLICY_PRESETS

    def __init__(self, inner: Method, settings: ProspectionSettings | None = None) -> None:
        settings = settings or ProspectionSettings()
        super().__init__(inner, ProspectiveReader(inner.reader, Prospection(settings)), settings=settings)


def _shown(fact: PersonalFact, info: str) -> KnownFact:
    when = format_time(fact.latest) if fact.latest else None
    shown = {"fact_id": fact.id, "info": info, "type": fact.type, "frequency": fact.frequency, "date": when}
    return KnownFact.model_validate({**shown, "related_entities": list(fact.entities)})
