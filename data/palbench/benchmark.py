"""PAL-Bench: does an assistant understand what its user needs and prefers, from device logs and earlier dialogues?

    palbench.restate    a brief query ──> the whole requirement        BLEU, or a judge (G-score)
    palbench.generate   the requirement ──> a solution                 BLEU against the two liked ones
    palbench.select     the requirement, S1..S8 ──> two of them        S-score
    palbench.dialogue   a simulated conversation                       `dialogue_benchmark`
    palbench            the first three, a suite                       mean of their scores, on 0 to 100

The genuine files are `input.json` and `input_en.json` of hzp3517/Mem-PAL (Huang et al. 2025); the paper calls the data
CC BY-NC 4.0, the repository holds no licence. `reader` says how they are read. The sample that is bundled is
our own, in the same form, Chinese and English.

An example holds `history`, `question`, `focus`, for `select` also `options`, with `show_logs` also `recent` (inputs);
`answer`, `category` (the language), `asked` and `id` (labels). `focus` names log entries that the needs rest on, where
the data tells them; no evidence is known of preferences. The query of the solution tasks is the gold requirement, as
released.

Example:
    >>> benchmark = PalSelect.load("data_synthesis_v2/data")
    >>> benchmark.score(benchmark.examples[0], dspy.Prediction(answer=["S2", "S7"])).parts
    {"s_score": 0.5, "liked": 0.5, "disliked": 0.0, "valid": 1.0}

Honest limits: a score is 0 to 1, but an S-score -1 to 1, as the paper has it: choosing by chance gives 0, and a failed
question as well. BLEU rewards wording. Scores are means over topics, not over users, as released.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy

from ...errors import DataError, UnknownNameError, UserError
from ...signatures.judges_pal import JudgeImplicitNeeds
from ...signatures.pal import selected
from ..benchmark import Benchmark, Reading, Score, Source, refuse_fatal
from ..confusion import Answered
from ..samples import sample
from .judges import NeedsJudge, RestatementJudge
from .metrics import bleu_parts, hundreds, scaled, selection_points
from .reader import Asked, files_of, read_palset

BLEU = {f"bleu{order}": f"BLEU-{order}" for order in (1, 2, 3, 4)}


class PalBench(Benchmark):
    """What the parts share: the file, the history of a topic, and how examples are put together.

    Args:
        examples: The topics.
        source: Where they came from.
        metric: One of `metrics`; the first if None.
    """

    metrics: ClassVar[Mapping[str, str]]
    """What `--metric` takes, with the names in tables."""
    category_names: ClassVar[Mapping[str, str]] = {"zh": "Chinese", "en": "English"}
    method_settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: {"logs": True, **({} if name == "recursive-summary" else {"k": 3})}
        for name in ("turn-rag", "session-rag", "recursive-summary", "condition-mem", "memory-bank")
    }
    """Mem-PAL, appendix C: the basic handling of logs that all baselines get, and 3 entries recalled."""

    def __init__(self, examples: Iterable[dspy.Example], source: Source, metric: str | None = None) -> None:
        super().__init__(tuple(examples), source)
        metric = metric or next(iter(self.metrics))
        if metric not in self.metrics:
            raise UnknownNameError(f"metric of {self.name}", metric, self.metrics)
        self.metric = metric
        self.metric_name = self.metrics[metric]

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        language: str | None = None,
        show_logs: bool = False,
        **options: Any,
    ) -> Self:
        """Reads the genuine files at `path`, or the bundled sample (both languages) when it is None.

        Args:
            path: `input.json`, `input_en.json`, or the folder of the released data.
            metric: What scores; see `metrics`.
            language: "zh", "en" or "all", for a folder.
            show_logs: Whether the logs of the current session are shown as they are, beside what is recalled, as the
                paper does with its baselines ("with log").
            **options: None are known; any is refused.

        Raises:
            DataError: A file is not of this form; the message names the user and the sample.
            UnknownNameError: A metric or an option that does not exist.
        """
        cls.refuse_options(options, ("metric", "language", "show_logs"))
        return cls.read(path, language, show_logs, metric=metric)

    @classmethod
    def read(cls, path: str | Path | None, language: str | None, show_logs: bool, **settings: Any) -> Self:
        """Reads the files and makes the benchmark with some constructor arguments."""
        cls.refuse_other_than_bool(show_logs=show_logs)
        if path is not None:
            return cls._made(files_of(Path(path), language), show_logs, settings, sample=False)
        with sample("palset") as folder:
            return cls._made(files_of(folder, language or "all"), show_logs, settings, sample=True)

    @classmethod
    def refuse_other_than_bool(cls, **options: Any) -> None:
        """Raises DataError for the first option that is neither true nor false."""
        for option, value in options.items():
            if not isinstance(value, bool):
                raise DataError(f"{cls.name}: {option}={value!r}: it must be true or false")

    @classmethod
    def _made(cls, files: Sequence[Path], show_logs: bool, settings: Mapping[str, Any], sample: bool) -> Self:
        where = files[0] if len(files) == 1 else files[0].parent
        _, asked = read_palset(files, refuse_fatal(where))
        examples = [cls._example(each, show_logs) for each in asked if cls.fits(each)]
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
        return cls(examples, Source(str(where), digest, sample), **settings)

    @classmethod
    def _example(cls, asked: Asked, show_logs: bool) -> dspy.Example:
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
        """Ids of the turns that hold what is asked for, where the data tells."""
        return asked.topic.evidence


class PalRestate(PalBench):
    """Requirement restatement: BLEU against the whole requirement, or points for the implicit needs."""

    name = "palbench.restate"
    task = "requirement-restatement"
    metrics: ClassVar[Mapping[str, str]] = {**BLEU, "g_score": "G-score"}
    judge_prompt = JudgeImplicitNeeds

    def __init__(self, examples: Iterable[dspy.Example], source: Source, metric: str | None = None) -> None:
        super().__init__(examples, source, metric)
        self.needs_judge = self.metric == "g_score"
        self.needs: RestatementJudge | None = None
        """Who gives points; set by `set_judge`, or by hand."""

    @classmethod
    def query(cls, asked: Asked) -> dict[str, Any]:
        return {"question": asked.topic.user_query}

    @classmethod
    def gold(cls, asked: Asked) -> str:
        return asked.topic.requirement

    def set_judge(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        """Makes the judge of restatements."""
        self.needs = NeedsJudge(lm, adapter)

    @property
    def judging(self) -> RestatementJudge | None:
        """The judge of restatements; None before one is set."""
        return self.needs

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores `prediction.answer` by the chosen metric.

        Raises:
            UserError: A judge is needed and none is set.
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        answer, topic = str(prediction.get("answer") or ""), example.asked.topic
        parts = bleu_parts(answer, [topic.requirement])
        said = ""
        if self.needs_judge:
            if self.needs is None:
                raise UserError(f"{self.name} scores by a judge here, and none is set; pass --judge-lm MODEL")
            found = self.needs(topic, answer)
            parts["g_score"] = found.points / 2
            said = f" The judge says: {found.analysis}" if found.analysis else ""
        value = parts[self.metric]
        if self.metric == "g_score" and value >= 1:
            return Score(value, "Right: both implicit needs are met.", parts)
        hidden = "; ".join(topic.needs)
        return Score(value, f"What the query left unsaid: {hidden}. In full: {topic.requirement}{said}", parts)

    def aggregate(self, rows: Sequence[Answered]) -> Mapping[str, float]:
        """The paper's columns, on 0 to 100."""
        return hundreds(rows, self.metrics)


class PalGenerate(PalBench):
    """Solution generation: BLEU against the two solutions that the user likes, the better of both."""

    name = "palbench.generate"
    task = "solution-proposal"
    metrics: ClassVar[Mapping[str, str]] = BLEU

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

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores `prediction.answer`."""
        topic = example.asked.topic
        parts = bleu_parts(str(prediction.get("answer") or ""), topic.positives)
        liked, disliked = " / ".join(topic.positives), " / ".join(topic.negatives)
        return Score(parts[self.metric], f"The user likes: {liked}. The user rejects: {disliked}.", parts)

    def aggregate(self, rows: Sequence[Answered]) -> Mapping[str, float]:
        """The paper's columns, on 0 to 100."""
        return hundreds(rows, self.metrics)


class PalSelect(PalBench):
    """Solution selection: a point for each liked candidate of the two chosen, minus one for each disliked."""

    name = "palbench.select"
    task = "solution-selection"
    metrics: ClassVar[Mapping[str, str]] = {"s_score": "S-score"}

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

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores the ids that `prediction.answer` names; 0 where they are not two of the candidates."""
        feedback = example.asked.topic.feedback
        chosen = selected(str(prediction.get("answer") or ""), len(feedback))
        points = selection_points(chosen, feedback)
        if points is None:
            hint = f"Name exactly two of {', '.join(feedback)}; the answer names {', '.join(chosen) or 'none'}."
            return Score(0.0, hint, {"s_score": 0.0, "liked": 0.0, "disliked": 0.0, "valid": 0.0})
        kinds = [feedback[id] for id in chosen]
        counts = {"liked": kinds.count("pos") / 2, "disliked": kinds.count("neg") / 2, "valid": 1.0}
        words = {"pos": "liked", "neg": "disliked", "neu": "neither liked nor disliked"}
        said = "; ".join(f"{id} is {words[kind]}" for id, kind in zip(chosen, kinds, strict=True))
        return Score(
            points / 2, f"{said}. The user likes {' and '.join(example.answer)}.", {"s_score": points / 2, **counts}
        )

    def aggregate(self, rows: Sequence[Answered]) -> Mapping[str, float]:
        """The paper's column, on -100 to 100, and how many answers named no two candidates."""
        invalid = sum(row.failure is None and not row.parts.get("valid") for row in rows)
        return {"S-score": scaled([2 * row.parts.get("s_score", 0.0) for row in rows]), "invalid selections": invalid}


def read_for_check(path: Path, note: Any) -> Reading:
    """What `mempiler data check palbench` reads: all users, and the topics that can be restated."""
    histories, asked = read_palset(files_of(path, "all"), note)
    return Reading(histories, tuple(PalRestate._example(each, False) for each in asked))
