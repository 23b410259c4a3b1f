"""RGMem: a memory at several scales, which changes where enough evidence has come together.

    session ── segments ── synthesize ──> facts, conclusions (L0) ── extract, label ──> graph (L1)
    step    ── R_K1 (mentions >= theta_inf) ── R_K2 (score >= theta_sum) ── R_K3 (dirty, children first) ──> theories
    question ── plan ──> keywords ──> facts, conclusions (BM25), profiles, inferences, history (cosine) ──> answer (L2)

Equations to functions:
    Eq. 2       memory state                     `memory.GraphMemory`
    Eq. 4       f_cg = f_synth after f_seg       `extraction.segments`, `extraction.synthesized`
    Eq. 5       f_extract                        `extraction.placed`, `graph_update.taken_in`
    Eq. 3       one step T(s) -> T(s+1)          `evolution.evolve`
    Eq. 6       R_K1                             `operators.LanguageOperators.relation`, `theories.inferred`
    Eq. 7, 9    mixed-scale input, projection    `operators.projected`
    Eq. 8-12    R_K2                             `operators.LanguageOperators.concept`, `theories.abstracted`
    Eq. 13      R_K3                             `operators.LanguageOperators.parent`, `theories.flowed`
    section 3.4 multi-scale observation          `reader.GraphReader`, `retrieval.Retrieval`
    Eq. 1, 14-21 are motivation; nothing computes them.

Critical path, in LM calls that must follow one another: 3 for all sessions together (synthesize, extract, label), then
per session 1 if an R_K1 fires, 1 if an R_K2 fires, and 1 per level of concepts that R_K3 renews;
`GraphMemory.depth()` counts the latter. A question takes 1 to plan and 1 to answer.

Deviations: where the plan finds nothing, the five newest facts and conclusions are recalled; `hybrid` (off) finds texts
by BM25 and cosine together.

Not in the paper, so ours: a step is one item; the rule of segmentation; score(v) counts +1 per new unit at a concept
and +1 per fresh R_K1 theory of an event edge below it; a renewed parent makes its own parents dirty, up to the user; a
concept with evidence and sub-concepts keeps both theories, and R_K3 takes its own one in; names are merged by stems and
cosine (`entities`, merge_cosine); where two people talk, both are the user; the synthesis prompt; the variants
w/o L0 (the graph is written as ever, but no evidence is recalled or searched), w/o L1 (no graph) and w/o RG (every
concept with new evidence is rewritten at every step from raw evidence, with one flat prompt).

Limits: merge_cosine and node_cosine belong to their embedder (`programs.thresholds`). The offline one compares
spelling: "Pottery class" and "Pottery classes" have .90, "Pottery" and "Pottery class" .71, "Running" and "Jogging"
.21, unrelated names 0; so .85 joins spellings of one name, and its node_cosine is .27, not the paper's .5. The offline
engine plans no keyword but the question, which reaches that with few names, and files everything under the first base
concept: with it the graph is written and evolves, but recall rests on L0. A fact rests
on all turns of its segment, a theory on those of all its units: recall of evidence leaves theories out, and facts still
count for more turns than a single one.

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents".
"""

from __future__ import annotations

from ...errors import UserError
from ...memory.index import Embedder
from ..method import Method
from .reader import GraphReader
from .writer import GraphWriter


class RGMem(Method):
    """The method.

    Args:
        embedder: Vectors of the names of nodes and of keywords.
        theta_inf: Mentions of an event edge at which R_K1 fires.
        theta_sum: Score of a concept at which R_K2 fires; the paper sets it to twice theta_inf.
        use_l0: Whether evidence is recalled (w/o L0).
        use_l1: Whether there is a graph (w/o L1).
        use_rg: Whether the operators evolve it (w/o RG: one flat summary per concept, renewed at every step).
        facts: Facts recalled per question.
        conclusions: Conclusions recalled per question.
        nodes: Concepts recalled per question, and events.
        node_cosine: Lowest cosine of a keyword and a node's name.
        merge_cosine: Lowest cosine of two names that are one node.
        segment_turns: Most turns of a segment.
        hybrid: Whether facts and conclusions are found by BM25 and cosine together, instead of by BM25.

    Raises:
        UserError: A setting has no such value.
    """

    def __init__(
        self,
        embedder: Embedder,
        theta_inf: int = 3,
        theta_sum: int = 6,
        use_l0: bool = True,
        use_l1: bool = True,
        use_rg: bool = True,
        facts: int = 5,
        conclusions: int = 30,
        nodes: int = 3,
        node_cosine: float = 0.5,
        merge_cosine: float = 0.85,
        segment_turns: int = 8,
        hybrid: bool = False,
    ) -> None:
        numbers = {"theta_inf": theta_inf, "theta_sum": theta_sum, "segment_turns": segment_turns}
        for name, number in numbers.items():
            if number < 1:
                raise UserError(f"{name} = {number} is less than 1")
        for name, number in {"facts": facts, "conclusions": conclusions, "nodes": nodes}.items():
            if number < 0:
                raise UserError(f"{name} = {number} is less than 0")
        if not (use_l0 or use_l1):
            raise UserError("use_l0 and use_l1 are both off: nothing is left to recall; leave one on")
        writer = GraphWriter(embedder, theta_inf, theta_sum, use_l1, use_rg, merge_cosine, segment_turns)
        reader = GraphReader(embedder, use_l0, use_l1, facts, conclusions, nodes, node_cosine, hybrid)
        super().__init__(writer, reader, embedder)
