"""H2Memory: what a user lives through from device logs, what they need and like from dialogues, on two levels each.

    Logs      ── link ── describe ──> situations (M_G) ── update ──> background, four aspects (M_B)
    Session   ── outline ── refine by situations and background ──> topics (M_T)
    settle    ── cluster ── abstract, or join ── adjust ──> types of need with principles (M_P)
    query     ──> 3 situations of the current session, their backgrounds, 3 topics, their principles

Equations to functions (Mem-PAL, "Memory Construction"; the paper's equations have no numbers):
    Upsilon = LLM(L)                     `logs.situations_of`, `situations.accepted`
    G_1 .. G_g, M_G^j = {s_1 .. s_g}     `situations.components`, `logs.situations_of`
    M_B^(j) = LLM(M_B^(j-1), M_G^j)      `chain.Chain`, `logs.updated`
    F_GB: M_G -> P(M_B)                  `HeterogeneousMemory.behind`
    T = {t_1 .. t_tau}, {r, o, p}        `dialogue.topics_of`, `outlines.Topic`
    r^ = LLM(r, R(s))                    `dialogue.refined`, `dialogue.nearest`
    M_P = {gamma, rho}, clusters C_i     `principles.Principles`, `clusters.clusters`, `.assigned`
    F_TP: M_T -> M_P                     `HeterogeneousMemory.above`
    m = {R(M_G^j), F_GB, R(M_T), F_TP}   `reader.UserReader`, `recall.recalled`
    R = LLM(m, Q)                        the task

Critical path, in LM calls that must follow one another: 2 for all items together (link, describe; outlines beside
them), 1 per item of logs to update the background, 1 to refine the last dialogue if no logs follow it, 2 for all
clusters, and 2 per dialogue that joins later. The needs of a dialogue are refined while the background takes in the
logs that come after it, so that only the background is a chain. `HeterogeneousMemory.depth()` counts what a memory
took, and a recall reports it as `depth`. A question takes 1 call, or 2 if its query is a dialogue (`need_summary`).

Logs are those items of kind `Logs` (or `Behavior`) that come before the `Session` they belong to; the current session's
are the last ones of the history. Profiles are passed over: the paper's assistant does not see them.

Deviations: clusters may have one member; vectors have length 1; links are shown by both kinds where the released code
shows one; a need of whose session nothing is known is not refined. Where the history set ends and later sessions begin
to join, the paper's data says. Here `online_month` takes the dialogues of the month in which the history ends as later
ones, as PAL-Set does, if there are enough before them (as many topics as clusters). A stored memory goes on from what
it was when it settled: whatever comes then joins, likewise.

Limits: for every question about a longer history the principles are made anew, since they settle where it ends; the
rest of the memory is shared. Optimizers see for a question the prompts that link, describe and outline; the others name
no turn, so that no replay shows them. The paper's vectors are those of paraphrase-multilingual-mpnet-base-v2; the
offline embedder compares spelling.

Source: Huang et al., "Mem-PAL: Towards Memory-based Personalized Dialogue Assistants for Long-term User-Agent
Interaction".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import UserError
from ...memory.index import Embedder
from ..method import Method
from .reader import UserReader
from .writer import UserWriter


class H2Memory(Method):
    """The method.

    Args:
        embedder: Vectors of situations, needs and queries.
        use_situations: Show situations (w/o M_G: the background is still written from them, and found through them).
        use_background: Write and show the background (w/o M_B).
        use_topics: Show topics (w/o M_T: principles are still made from them, and found through them).
        use_principles: Make and show principles (w/o M_P).
        clusters: Most clusters of needs.
        situations: Situations recalled per query, and shown where a need is refined.
        topics: Topics recalled per query.
        sample_per_cluster: Most topics of a cluster that a prompt is shown (released code).
        window: Logs per call of the prompt that links them; it sees as many before them.
        seed: Of clusters and samples.
        clustered: False: a principle for every topic, as for LongMemEval.
        online_month: Whether dialogues of the month in which the history ends join one by one.
        need_summary: Whether a query that is a dialogue is summed up before the search.

    Raises:
        UserError: A setting has no such value.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "longmemeval.preference": {"use_situations": False, "use_background": False, "clustered": False}
    }
    """Mem-PAL, appendix C: dialogues without logs, and one principle for every outline."""

    def __init__(
        self,
        embedder: Embedder,
        use_situations: bool = True,
        use_background: bool = True,
        use_topics: bool = True,
        use_principles: bool = True,
        clusters: int = 8,
        situations: int = 3,
        topics: int = 3,
        sample_per_cluster: int = 10,
        window: int = 10,
        seed: int = 0,
        clustered: bool = True,
        online_month: bool = True,
        need_summary: bool = True,
    ) -> None:
        for name, number, least in (
            ("clusters", clusters, 1),
            ("situations", situations, 0),
            ("topics", topics, 0),
            ("sample_per_cluster", sample_per_cluster, 1),
            ("window", window, 1),
            ("seed", seed, 0),
        ):
            if number < least:
                raise UserError(f"{name} = {number} is less than {least}")
        if not (use_situations or use_background or use_topics or use_principles):
            raise UserError("use_situations, use_background, use_topics and use_principles are all off; leave one on")
        writer = UserWriter(
            embedder,
            use_situations,
            use_background,
            use_principles,
            dialogues=use_topics or use_principles,
            clusters=clusters,
            situations=situations,
            sample_per_cluster=sample_per_cluster,
            window=window,
            seed=seed,
            clustered=clustered,
            online_month=online_month,
        )
        reader = UserReader(
            embedder, use_situations, use_background, use_topics, use_principles, situations, topics, need_summary
        )
        super().__init__(writer, reader, embedder)
