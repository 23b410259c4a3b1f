"""PAL-Bench: does an assistant understand what its user needs and prefers, from device logs and earlier dialogues?

    palbench.restate    a brief query ──> the whole requirement        BLEU, or a judge (G-score)
    palbench.generate   the requirement ──> a solution                 BLEU against the two liked ones
    palbench.select     the requirement, S1..S8 ──> two of them        S-score
    palbench.dialogue   a simulated conversation                       `dialogue`

The genuine files are `input.json` and `input_en.json` of hzp3517/Mem-PAL (Huang et al. 2025); the paper calls the data
CC BY-NC 4.0, the repository holds no licence. `reader` says how they are read. The sample that is bundled is
our own, in the same form, Chinese and English.

An example holds `history`, `question`, `focus`, for `select` also `options`, with `show_logs` also `recent` (inputs);
`answer`, `category` (the language), `asked` and `id` (labels). `focus` names log entries that the needs rest on, where
the data tells them; no evidence is known of preferences. The query of the solution tasks is the gold requirement, as
released.

Limits: a score is 0 to 1, but an S-score -1 to 1, as the paper has it: choosing by chance gives 0, and a failed
question as well. BLEU rewards wording. Scores are means over topics, not over users, as released.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy

from ..benchmark import Benchmark
from ..dataset import Note, Reading
from ..scorer import Combined, Scorer
from ..synthesis.palset.validate import validate
from .reader import Asked, files_of, read_palset
from .scorer import BLEU, GenerationBleu, NeedPoints, RestatementBleu, SelectionPoints


class PalBench(Benchmark):
    """What the parts share: the file, the history of a topic, and how examples are put together."""

    sample = "palset"
    categories: ClassVar[Mapping[str, str]] = {"zh": "Chinese", "en": "English"}

    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> Self:
        """As `Benchmark.load`; of the sample both languages are read."""
        if path is None and not options.get("language"):
            options["language"] = "all"
        return super().load(path, **options)

    @classmethod
    def read(
        cls, path: Path, note: Note, *, language: str | None = None, show_logs: bool = False, strict: bool = False
    ) -> Reading:
        """All users, and the topics that this part can ask about.

        Args:
            path: `input.json`, `input_en.json`, or the folder of the released data.
            note: What findings are told to.
            language: "zh", "en" or "all", for a folder; the Chinese data, which is the original, if None.
            show_logs: Whether the logs of the current session are shown as they are, beside what is recalled, as the
                paper does with its baselines ("with log").
            strict: Whether everything is remarked on that the released form does not have, also what readers cope with.
        """
        files = tuple(files_of(path, language))
        for file in files if strict else ():
            for fault in validate(file):
                note(fault)
        histories, asked = read_palset(files, note)
        examples = tuple(cls.example(each, show_logs) for each in asked if cls.fits(each))
        return Reading(histories, examples, files)

    @classmethod
    def example(cls, asked: Asked, show_logs: bool) -> dspy.Example:
        """One topic as this part asks it."""
        shown = {"recent": (asked.logs,)} if show_logs and asked.logs else {}
        fields = {"history": asked.history, **cls.query(asked), "focus": cls.evidence(asked), **shown}
        labels = {"answer": cls.gold(asked), "category": asked.language, "asked": asked, "id": asked.id}
        return dspy.Example(**fields, **labels).with_inputs(*fields)

    @classmethod
    def fits(cls, asked: Asked) -> bool:
        """Whether the topic holds what this part asks about."""
        return True

    @classmethod
    @abstractmethod
    def query(cls, asked: Asked) -> dict[str, Any]:
        """The query fields of a topic."""

    @classmethod
    @abstractmethod
    def gold(cls, asked: Asked) -> str | list[str]:
        """The gold answer of a topic, as the task gives it."""

    @classmethod
    def evidence(cls, asked: Asked) -> tuple[str, ...]:
        """Ids of the turns that hold the answer, if the data has them."""
        return asked.topic.evidence


class PalRestate(PalBench):
    """Requirement restatement: BLEU against the whole requirement, or points for the implicit needs."""

    name = "palbench.restate"
    task = "requirement-restatement"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        **{bleu: lambda bleu=bleu: RestatementBleu(bleu) for bleu in BLEU},
        "g_score": lambda: Combined(NeedPoints(), RestatementBleu("bleu1")),
    }

    @classmethod
    def query(cls, asked: Asked) -> dict[str, Any]:
        return {"question": asked.topic.user_query}

    @classmethod
    def gold(cls, asked: Asked) -> str:
        return asked.topic.requirement


class PalGenerate(PalBench):
    """Solution generation: BLEU against the two solutions that the user likes, the better of both."""

    name = "palbench.generate"
    task = "solution-proposal"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        bleu: lambda bleu=bleu: GenerationBleu(bleu) for bleu in BLEU
    }

    @classmethod
    def fits(cls, asked: Asked) -> bool:
        return bool(asked.topic.positives)

    @classmethod
    def query(cls, asked: Asked) -> dict[str, Any]:
        return {"question": asked.topic.requirement}

    @classmethod
    def gold(cls, asked: Asked) -> str:
        return asked.topic.positives[0]

    @classmethod
    def evidence(cls, asked: Asked) -> tuple[str, ...]:
        return ()


class PalSelect(PalBench):
    """Solution selection: a point for each liked candidate of the two chosen, minus one for each disliked."""

    name = "palbench.select"
    task = "solution-selection"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"s_score": SelectionPoints}

    @classmethod
    def fits(cls, asked: Asked) -> bool:
        return len(asked.topic.candidates) >= 2

    @classmethod
    def query(cls, asked: Asked) -> dict[str, Any]:
        return {"question": asked.topic.requirement, "options": asked.topic.options}

    @classmethod
    def gold(cls, asked: Asked) -> list[str]:
        return [id for id, kind in asked.topic.feedback.items() if kind == "pos"]

    @classmethod
    def evidence(cls, asked: Asked) -> tuple[str, ...]:
        return ()
