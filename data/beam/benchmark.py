"""BEAM, "Beyond a Million Tokens" (Tavakoli et al., ICLR 2026): ten abilities over long chats.

The chats have 100K to 10M tokens. The genuine files are `chats/` of
github.com/mohammadtavakoli78/BEAM, which names no licence, and the hub sets Mohammadta/BEAM and
Mohammadta/BEAM-10M; none is bundled, and the sample is our own. The reader was checked against a
genuine chat of 100K. There is no official split: all chats are test, and the split here is by chat.

Limits: rubrics were revised after some gold answers, so they may disagree; what is scored is the
rubric. All abilities are asked by one task, so `question-answering` writes short answers where a
rubric may want style, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import dspy

from ...records import History
from ..benchmark import Benchmark
from ..dataset import Dataset, FindingListener
from ..scorer import Scorer
from .files import Size, find_chats
from .reader import ABILITIES, ABSTENTION, read_chat, read_questions
from .scorer import EvidenceRecall, FixedRubricScorer, OfficialRubricScorer


class Beam(Benchmark):
    """BEAM's probing questions; metrics "fixed" and "official" (judged) and "evidence"."""

    name = "beam"
    sample = "beam"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "fixed": FixedRubricScorer,
        "official": OfficialRubricScorer,
        "evidence": EvidenceRecall,
    }
    categories: ClassVar[Mapping[str, str]] = {ability: ability for ability in ABILITIES}
    expected_categories = ABILITIES

    @property
    def has_unanswerable(self) -> bool:
        return any(example.category == ABSTENTION for example in self.examples)

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener, *, size: Size | None = None) -> Dataset:
        """Read chats and their questions, chat by chat.

        Args:
            path: The folder of a chat or of many, or a file of the hub's rows (parquet, JSON or
                JSON lines).
            on_finding: Receives what is wrong in them.
            size: 100K, 500K, 1M or 10M; all that are there if None.
        """
        files: list[Path] = []
        histories: dict[str, History] = {}
        examples: list[dspy.Example] = []
        for chat_files in find_chats(path, size):
            files.extend(chat_files.files)
            for source in chat_files.open_chats(on_finding):
                chat = read_chat(source)
                if source.id in histories:
                    problem = f"{source.id!r} is the id of two chats"
                    # Reporting does not raise: reading goes on, to report all problems of the data.
                    source.location.reject("duplicate id", problem)
                histories[source.id] = chat.history
                examples.extend(read_questions(source, chat))
        return Dataset(tuple(histories.values()), tuple(examples), tuple(files))
