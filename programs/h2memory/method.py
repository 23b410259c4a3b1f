"""H2Memory: what a user lives through, from logs, and what they need and like, from dialogues.

    logs      ── link ── describe ──> situations (M_G) ── update ──> background (M_B)
    dialogue  ── outline ── refine by situations and background ──> topics (M_T)
    finalize  ── cluster ── abstract, or join ── adjust ──> types of need with principles (M_P)
    query     ──> 3 situations of the current session, their backgrounds, 3 topics, their principles

Critical path, in LM calls that must follow one another: 2 for all items together (link, describe;
outlines beside them), 1 per item of logs to update the background, 1 to refine the last dialogue if
no logs follow it, 2 for all clusters, and 2 per dialogue that joins later. The needs of a dialogue
are refined while the background takes in the logs that come after it, so that only the background
is a chain. A question takes 1 call, or 2 if its query is a dialogue, which is summed up first.

Logs are items of kind `Logs` or `Behavior`. They belong to the `Session` that comes after them.
Those at the end of a history belong to the session in which the question is asked. Profiles are
passed over: the paper's assistant does not see them.

Limits: finalizing makes the principles, so they are made anew for every question about a longer
history. A stored memory goes on from its finalized form. For a question, optimizers see the prompts
that link, describe and outline; the others name no turn.

Source: Huang et al., "Mem-PAL: Towards Memory-based Personalized Dialogue Assistants for Long-term
User-Agent Interaction".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...memory.search.embedder import Embedder
from .._embedders import offline_embedder
from ..method import Method
from .reader import RecallSettings, UserReader
from .writer import MemorySettings, UserWriter, UserWriterSettings


class H2MemorySettings(RecallSettings):
    """What can be set of `H2Memory`."""

    deprecated: ClassVar[Mapping[str, Any]] = {"need_summary": True}
    at_least_one_of = ("use_situations", "use_background", "use_topics", "use_principles")

    def for_writer(self) -> UserWriterSettings:
        """Return the settings of the writer, without those that only concern recall.

        `dialogues` is the one setting of the writer that users cannot set: dialogues are read if
        topics are shown, or if principles are made from topics.
        """
        shared = self.restrict_to(MemorySettings)
        reads_dialogues = self.use_topics or self.use_principles
        return UserWriterSettings(**shared.model_dump(), dialogues=reads_dialogues)


class H2Memory(Method):
    """The paper's method.

    Args:
        settings: What is written and recalled; the defaults if None.
        embedder: Compares situations, needs and queries; the offline embedder if None.
    """

    Settings = H2MemorySettings
    embedder_use = "required"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "longmemeval.preference": {
            "use_situations": False,
            "use_background": False,
            "clustered": False,
        }
    }
    """Mem-PAL, appendix C: dialogues without logs, and one principle for every outline."""

    def __init__(
        self, settings: H2MemorySettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or H2MemorySettings()
        embedder = embedder or offline_embedder()
        writer = UserWriter(settings.for_writer(), embedder)
        reader = UserReader(settings, embedder)
        super().__init__(writer, reader, embedder, settings)
