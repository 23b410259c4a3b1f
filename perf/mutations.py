"""The mutations of the methods: one mechanism broken each, by one piece of source text in the place of another.

Every old text stands in its file exactly once; `tests/perf/test_mutants.py` holds that, so that whoever rewords a
mechanism rewords its mutation. Several lines that belong together are one text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One mechanism that is broken."""

    method: str
    file: str
    """Below the root of the repository."""
    old: str
    new: str
    breaks: str
    """What no longer holds; names it."""


def of(method: str, folder: str, *rows: tuple[str, str, str, str]) -> tuple[Mutation, ...]:
    """The mutations of a group in one folder, by rows of file, old text, new text and what they break."""
    return tuple(Mutation(method, f"{folder}/{file}.py", old, new, breaks) for file, old, new, breaks in rows)


PRAMEM = of(
    "pramem",
    "programs/pramem",
    (
        "adjustment",
        "_support(supporters, settings) < settings.needed:",
        "_support(supporters, settings) < 1:",
        "needed support is not looked at",
    ),
    (
        "adjustment",
        "return len({proposal.record for proposal in proposals})",
        "return len(proposals)",
        "a record agrees with itself",
    ),
    ("adjustment", "any(id not in pool for id in cited)", "False", "invented proposals count"),
    (
        "adjustment",
        "in supporters for id in proposal.sources)",
        "in () for id in proposal.sources)",
        "experience loses its records",
    ),
    (
        "adjustment",
        "spent.update(proposal.id for proposal in supporters)",
        "pass",
        "adopted proposals stay in the pool",
    ),
    (
        "adjustment",
        'return _pooled(memory, target), "downgraded"',
        'return memory, "downgraded"',
        "what is downgraded is deleted",
    ),
    ("adjustment", "if not settings.consensus:", "if True:", "every proposal is adopted"),
    (
        "practice",
        "for id, proposal in named.items() if verdicts.get(id, False)}",
        "for id, proposal in named.items()}",
        "the review accepts all",
    ),
    (
        "practice",
        "(verdict.proposal, verdict.general)",
        "(verdict.proposal, not verdict.general)",
        "generality has the wrong sign",
    ),
    (
        "practice",
        "choice.situation != true_letter if is_clear",
        "choice.situation == true_letter if is_clear",
        "a blind choice has the wrong sign",
    ),
    (
        "practice",
        "is_clear = choice.situation == NO_SCENE or choice.situation in letters",
        "is_clear = True",
        "an unclear choice is one",
    ),
    (
        "practice",
        "if id in named and found in ({True}, {False})}",
        "if id in named}",
        "an unclear verdict is one",
    ),
    ("practice", "verdicts.get(id, False) or overturned", "not overturned", "groundedness has the wrong sign"),
    (
        "samples",
        "past = suffix(memory.records[:place], max_tokens)",
        "past = suffix(memory.records[: place + 1], max_tokens)",
        "a sample shows its outcome",
    ),
    (
        "practice",
        '"pattern_experiences": known(memory.patterns),',
        '"pattern_experiences": known(memory.alerts),',
        "reflection sees alerts as patterns",
    ),
    ("practice", 'inputs["thinking"] = _thinking(trial)', 'inputs["thinking"] = ""', "reflection sees no thinking"),
    ("method", "memory = adjust(self.ask, settings, memory)", "pass", "experience is never adjusted"),
    (
        "memory",
        "dropped=self.dropped + gone, practised=self.total)",
        "dropped=self.dropped + gone)",
        "records are practised on again",
    ),
    ("method", '[hit.text for hit in hits if hit.kind == "alert"]', "[]", "alerts are not shown to the answer"),
)
PGR = of(
    "pgr",
    "programs/pgr",
    (
        "prospection",
        'tree = settings.strategy == "tree"',
        'tree = settings.strategy == "chain"',
        "tree and chain are swapped",
    ),
    ("prospection", "steps = repaired(nodes)", "steps = nodes", "trees are not put right"),
    (
        "prospection",
        "self.search(probes, self.k, self.min_score)",
        "self.search(probes, self.k, -1.0)",
        "the score of a probe's hit is not looked at",
    ),
    (
        "prospection",
        "self.search(probes, self.k, self.min_score)",
        "self.search(probes, 1, self.min_score)",
        "a probe finds one fact",
    ),
    (
        "prospection",
        "for step in steps]) < self.settings.min_new:",
        "for step in steps]) < 0:",
        "the loop does not end where little is new",
    ),
    (
        "prospection",
        "for _ in range(self.settings.iterations):",
        "for _ in range(min(1, self.settings.iterations)):",
        "there is one round",
    ),
    (
        "prospection",
        "given.augment_k, given.augment_score)",
        "given.augment_k, -1.0)",
        "augmentation takes what is not close",
    ),
    (
        "prospection",
        "(step.action.strip(), step.constraints.strip())",
        "(step.action.strip(),)",
        "constraints are not searched",
    ),
    (
        "prospection",
        "walk.probe([question, *map(probe, steps)])",
        "walk.probe([question])",
        "imagined steps are not searched",
    ),
    ("prospection", '"personal_context": walk.text()}', '"personal_context": ""}', "refinement sees no facts"),
    ("prospection", "notes={NOTE: summary} if summary else {}", "notes={}", "the summary is dropped"),
    (
        "prospection",
        'not close or given.augment == "append"',
        'not close or given.augment == "rewrite"',
        "append and rewrite are swapped",
    ),
    ("memory", "frequency=old.frequency + 1,", "frequency=old.frequency,", "an update does not count"),
    (
        "memory",
        "sources=_united(turn for fact in parts for turn in fact.sources)",
        "sources=parts[-1].sources",
        "a merged fact loses turns",
    ),
    (
        "memory",
        "(day - begun[label]).days > window_days",
        "(day - begun[label]).days > 99_999",
        "days between merged facts are not looked at",
    ),
    ("memory", ">= min_cosine - 1e-6", ">= -2.0", "facts merge that are not alike"),
)
MEMORY_R2 = of(
    "memory_r2",
    "programs/memory_r2",
    (
        "memory",
        "is not None and edit.memory_id in self._shown",
        "is not None",
        "an entry that was not shown is changed",
    ),
    (
        "memory",
        "sources = _united(fact.sources, edit.sources)",
        "sources = _united((), edit.sources)",
        "an update loses provenance",
    ),
    ("memory", "(*fact.earlier, fact.content)[-WORDINGS:]", "fact.earlier", "an update loses the earlier wording"),
    ("memory", "self.removed.append(self.facts.pop(place))", "self.facts.pop(place)", "a deleted entry is lost"),
    ("memory", "        if known is not None:", "        if False:", "equal facts are not merged"),
    ("method", "else SpeakerIs(speaker)", "else None", "facts of other speakers are related"),
    (
        "method",
        "settings.related, settings.min_score, where",
        "settings.related, -1.0, where",
        "facts are related that are not near",
    ),
    (
        "method",
        "for hit in ranked))[: settings.related_total])",
        "for hit in ranked)))",
        "the manager sees any number of memories",
    ),
    (
        "method",
        "memory.left(item, {turn.id for turn in chunk}) if after is None else after",
        "memory if after is None else after",
        "what could not be written is lost",
    ),
    ("method", '{"earlier_facts": before} if', '{"earlier_facts": []} if', "the manager sees no earlier facts"),
    (
        "method",
        "SpeakerIs(first), SpeakerIs(first, same=False)",
        "SpeakerIs(first), SpeakerIs(first)",
        "the other speaker is not recalled",
    ),
    ("method", "if hit.speaker == first]", "if hit.speaker != first]", "the reader mixes the speakers up"),
)
LOGO_GRPO = (
    *of(
        "logo_grpo",
        "optimizers/logo_grpo",
        (
            "reward",
            "answered.mean - settings.compression *",
            "answered.mean + settings.compression *",
            "the penalty of length has the wrong sign",
        ),
        ("reward", "memory_words - threshold * session_words)", "memory_words)", "no length is free"),
        (
            "reward",
            'if example.get("focus") else last)',
            "if False else True)",
            "a session is credited with all questions",
        ),
        ("reward", "fmean(found[n:])", "fmean(found[: n + 1])", "a session is credited with earlier ones"),
        (
            "reward",
            "unreadable=not last or call.error is not None",
            "unreadable=False",
            "malformed output costs nothing",
        ),
        (
            "groups",
            "setdefault((*key, where, role, n), [])",
            "setdefault((*key, where, role, 1), [])",
            "calls of other prompts are compared",
        ),
        (
            "groups",
            "if max(rewards) - min(rewards) > 1e-9:",
            "if True:",
            "groups without a difference are trained on",
        ),
        ("settings", "min(horizon, longest)", "longest", "the curriculum begins at its end"),
    ),
    Mutation(
        "logo_grpo",
        "engines/local/loss.py",
        "totals[member] -= weight * share",
        "totals[member] += weight * share",
        "faults are rewarded",
    ),
    Mutation(
        "logo_grpo",
        "engines/local/loss.py",
        "return [(reward - mean) / by for reward in rewards]",
        "return [(mean - reward) / by for reward in rewards]",
        "an advantage has the wrong sign",
    ),
)
H2MEMORY = of(
    "h2memory",
    "programs/h2memory",
    (
        "memory",
        "if aspect in named and aspect in self.background",
        "if aspect in self.background",
        "links of situations to aspects are not looked at",
    ),
    ("memory", "own = () if self.answered else self.batches", "own = ()", "a topic forgets its own logs"),
    (
        "memory",
        "before = changed[aspect].situations if aspect in changed else ()",
        "before = ()",
        "the background loses provenance",
    ),
    (
        "recall",
        "[hit_of(memory, aspect) for aspect in backgrounds]",
        "[]",
        "the background is unused",
    ),
    (
        "recall",
        "memory.above(known[hit.id] for hit in told)",
        "list(memory.principles)",
        "links of topics to principles are not looked at",
    ),
    ("recall", "sources = memory.turns(part.members)", "sources = ()", "a principle loses its turns"),
    (
        "principles",
        "np.argmin([np.linalg.norm(row - centre)",
        "np.argmax([np.linalg.norm(row - centre)",
        "a topic joins the farthest principle",
    ),
    (
        "principles",
        "moved[nearest] + (row - moved[nearest])",
        "moved[nearest] - (row - moved[nearest])",
        "a centre moves the wrong way",
    ),
    ("principles", "if verdict and verdict.adjust else", "if verdict else", "a principle changes against the verdict"),
    ("extraction", "0 <= earlier < later", "0 <= earlier", "a log follows a later one"),
    ("extraction", "            a += b", "            pass", "linked logs are not one group"),
    ("memory", 'if content == "needs":', 'if content == "solutions":', "needs and solutions are swapped"),
)
RGMEM = of(
    "rgmem",
    "programs/rgmem",
    ("evolution", "if relation.count >= theta_inf]", "if relation.count >= 1]", "theta_inf is ignored"),
    ("evolution", "node.score >= theta_sum]", "node.score >= 1]", "theta_sum is ignored"),
    ("evolution", "(theory=theory, count=0)", "(theory=theory)", "R_K1 does not reset its counter"),
    ("evolution", "fresh_relations=(), score=0)", "fresh_relations=())", "R_K2 does not reset its score"),
    (
        "evolution",
        "(score=node.score + 1, fresh_relations=fresh)",
        "(score=node.score)",
        "R_K1 is no evidence for R_K2",
    ),
    ("evolution", "nodes=_dirty(nodes, memory.parents(id))", "nodes=nodes", "R_K3 stops at the first parent"),
    ("evolution", "(*memory.parents(id), *([id] if below else ()))", "()", "R_K2 dirties nobody"),
    ("memory", "return self.flow or self.own", "return self.own or self.flow", "what flows up is hidden"),
    ("memory", "if one.high) or conclusions", ") or conclusions", "relevance is ignored"),
    (
        "evolution",
        "[id for id in node.fresh if id not in covered]",
        "list(node.fresh)",
        "projection shows what theories cover",
    ),
    (
        "evolution",
        "outputs, [_evidence(before), fresh])",
        "outputs, [fresh])",
        "a relation's theory loses provenance",
    ),
    ("retrieval", "settings.node_cosine, passes", "-1.0, passes", "names are found that are not near"),
    (
        "retrieval",
        "for keyword in keywords if layer in keyword.retrieve]",
        "for keyword in keywords]",
        "layers of the plan are ignored",
    ),
)
METHODS = (*PRAMEM, *PGR, *MEMORY_R2, *LOGO_GRPO, *H2MEMORY, *RGMEM)
