"""PAL-Bench: does an assistant understand what its user needs and prefers, from device logs and earlier dialogues?

    palbench.restate    a brief query ──> the whole requirement        BLEU, or a judge (G-score, 0 to 2 points)
    palbench.generate   the requirement ──> a solution                 BLEU against the two liked ones
    palbench.select     the requirement, S1..S8 ──> two of them        S-score (-2 to 2 points)
    palbench.dialogue   a simulated conversation                       `dialogue`

The genuine files are `input.json` and `input_en.json` of hzp3517/Mem-PAL (Huang et al. 2025); the paper calls the data
CC BY-NC 4.0, the repository holds no licence. The sample is our own, Chinese and English. `evidence_ids` names log entries
that the needs rest on; no evidence is known of preferences.

Limits: an S-score is -1 to 1, so that chance gives 0, and a failed question as well. BLEU rewards wording. Scores are
means over topics, not over users, as released.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import dspy

from ...records.chinese import MAX_RUN_LENGTH, chinese_cutter
from ...signatures.judges import JudgeImplicitNeeds
from ...signatures.pal import parse_candidate_ids
from ...text import one_line
from ..benchmark import Benchmark
from ..common_scorers import Combined
from ..dataset import Dataset, FindingListener
from ..judge import JudgeRoles, PromptJudge
from ..scorer import Score, ScoredAnswer, Scorer, answer_of
from ..text_metrics import sentence_bleu
from .reader import QueryTopic, Topic, files_of, read_palset

BLEU = {f"bleu{order}": f"BLEU-{order}" for order in (1, 2, 3, 4)}
POINTS = {"pos": 1, "neg": -1, "neu": 0}
"""What selecting a candidate of each kind gives."""

_LONG_RUN = re.compile(rf"[\u4e00-\u9fd5]{{{MAX_RUN_LENGTH}}}")


def words(text: str) -> list[str]:
    """The text as jieba cuts it by default; blanks and punctuation marks are words, too."""
    ends = [run.end() for run in _LONG_RUN.finditer(text)]
    return [word for start, end in pairwise((0, *ends, len(text))) for word in chinese_cutter().cut(text[start:end])]


def bleu(answer: str, references: Sequence[str]) -> tuple[float, float, float, float]:
    """BLEU-1 to BLEU-4 of an answer, 0 to 1; of each order the best over the references.

    An empty answer, or one that shares no word, scores 0; so does any answer without a reference.
    """
    said, wanted = words(answer), [words(reference) for reference in references]
    one, two, three, four = (
        max((sentence_bleu(said, gold, order) for gold in wanted), default=0.0) for order in (1, 2, 3, 4)
    )
    return one, two, three, four


def scaled(points: Sequence[float]) -> float:
    """The paper's scale for means of points; 0 if empty.

    0 to 2 points for implicit needs give a G-score of 0 to 100, -2 to 2 points for selections an S-score of -100 to 100
    (appendix B, Requirement Restatement and Solution Proposal).
    """
    return 50 * sum(points) / len(points) if points else 0.0


def mean_percentages(rows: Sequence[ScoredAnswer], metrics: Mapping[str, str]) -> dict[str, float]:
    """Means of parts over all rows, on 0 to 100, under their names in tables; a failed question counts 0."""
    known = {part for row in rows for part in row.parts}
    return {metrics[name]: scaled([2 * row.parts.get(name, 0.0) for row in rows]) for name in metrics if name in known}


def selection_points(chosen: Sequence[str], feedback: Mapping[str, str]) -> int | None:
    """Points of a selection, -2 to 2; None where it is not two different candidates.

    Args:
        chosen: Ids of candidates.
        feedback: "pos", "neg" or "neu" by the id of each candidate.
    """
    if len(chosen) != 2 or len(set(chosen)) != 2 or not set(chosen) <= feedback.keys():
        return None
    return sum(POINTS[feedback[id]] for id in chosen)


class NeedsJudge(PromptJudge):
    """Scores restatements by `signatures.judges.JudgeImplicitNeeds`."""

    signature = JudgeImplicitNeeds

    def __call__(self, topic: Topic, answer: str) -> tuple[float, str]:
        """0, .5, 1, 1.5 or 2 points for a restatement and why, raising what `ask` does.

        An empty one gets 0 without a call.
        """
        if not answer.strip():
            return 0.0, "no answer was given"
        found = self.ask(
            user_query=topic.user_query,
            requirement=topic.requirement,
            implicit_needs=list(topic.needs),
            prediction=answer,
        )
        return found.score.points, one_line(found.analysis)


class RestatementBleu(Scorer):
    """BLEU against the whole requirement.

    Args:
        part: Which order counts, "bleu1" to "bleu4".
    """

    def __init__(self, part: str) -> None:
        self.part = part
        self.title = BLEU[part]

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        topic: Topic = example.asked.topic
        parts = dict(zip(BLEU, bleu(answer_of(prediction), self.references(topic)), strict=True))
        return Score(parts[self.part], self.feedback(topic), parts)

    def references(self, topic: Topic) -> Sequence[str]:
        """What an answer is compared with."""
        return [topic.requirement]

    def feedback(self, topic: Topic) -> str:
        """What a right answer holds."""
        return omitted_needs(topic)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """The paper's columns, on 0 to 100."""
        return mean_percentages(rows, BLEU)


class GenerationBleu(RestatementBleu):
    """BLEU against the two solutions that the user likes, the better of both."""

    def references(self, topic: Topic) -> Sequence[str]:
        return topic.positives

    def feedback(self, topic: Topic) -> str:
        liked, disliked = " / ".join(topic.positives), " / ".join(topic.negatives)
        return f"The user likes: {liked}. The user rejects: {disliked}."


class NeedPoints(Scorer):
    """Points of a judge for the implicit needs that a restatement meets, 0 to 2."""

    title = "G-score"
    judge_roles: ClassVar[JudgeRoles] = {"judge": NeedsJudge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        topic: Topic = example.asked.topic
        points, analysis = self.judge()(topic, answer_of(prediction))
        said = f" The judge says: {analysis}" if analysis else ""
        feedback = "Right: both implicit needs are met." if points >= 2 else omitted_needs(topic) + said
        return Score(points / 2, feedback, {"g_score": points / 2})

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """The paper's column, on 0 to 100."""
        return mean_percentages(rows, {"g_score": "G-score"})


class SelectionPoints(Scorer):
    """A point for each liked candidate of the two chosen, minus one for each disliked."""

    title = "S-score"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores the ids that `prediction.answer` names; 0 where they are not two of the candidates."""
        feedback = example.asked.topic.feedback
        chosen = parse_candidate_ids(answer_of(prediction), len(feedback))
        points = selection_points(chosen, feedback)
        if points is None:
            hint = f"Name exactly two of {', '.join(feedback)}; the answer names {', '.join(chosen) or 'none'}."
            return Score(0.0, hint, {"s_score": 0.0, "liked": 0.0, "disliked": 0.0, "valid": 0.0})
        kinds = [feedback[id] for id in chosen]
        counts = {"liked": kinds.count("pos") / 2, "disliked": kinds.count("neg") / 2, "valid": 1.0}
        words = {"pos": "liked", "neg": "disliked", "neu": "neither liked nor disliked"}
        said = "; ".join(f"{id} is {words[kind]}" for id, kind in zip(chosen, kinds, strict=True))
        liked = f"The user likes {' and '.join(example.answer)}."
        return Score(points / 2, f"{said}. {liked}", {"s_score": points / 2, **counts})

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """The paper's column, on -100 to 100, and how many answers named no two candidates."""
        invalid = sum(row.failure is None and not row.parts.get("valid") for row in rows)
        return {"S-score": scaled([2 * row.parts.get("s_score", 0.0) for row in rows]), "invalid selections": invalid}


def omitted_needs(topic: Topic) -> str:
    """What a brief query leaves out."""
    return f"What the query left unsaid: {'; '.join(topic.needs)}. In full: {topic.requirement}"


Gold = str | list[str]


class PalBench(Benchmark):
    """What the parts share: the file, the history of a topic, and how examples are put together."""

    sample = "palset"
    categories: ClassVar[Mapping[str, str]] = {"zh": "Chinese", "en": "English"}
    by_logs: ClassVar[bool] = True
    """Whether the log entries that the needs rest on hold the answer."""

    @classmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> Self:
        """As `Benchmark.load`; of the sample both languages are read."""
        if path is None and not options.get("language"):
            options["language"] = "all"
        return super().load(path, **options)

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        language: Literal["zh", "en", "all"] | None = None,
        show_logs: bool = False,
    ) -> Dataset:
        """All users, and the topics that this part can ask about.

        Args:
            path: `input.json`, `input_en.json`, or the folder of the released data.
            on_finding: What findings are told to.
            language: Of a folder; the Chinese data, which is the original, if None.
            show_logs: Whether the logs of the current session are shown as they are, beside what is recalled, as the
                paper does with its baselines ("with log").
        """
        files = tuple(files_of(path, language))
        histories, topics = read_palset(files, on_finding)
        examples = tuple(example for each in topics if (example := cls._example(each, show_logs)))
        return Dataset(histories, examples, files)

    @classmethod
    def _example(cls, asked: QueryTopic, show_logs: bool) -> dspy.Example | None:
        found = cls.query_and_gold(asked.topic)
        if found is None:
            return None
        shown = {"recent": (asked.logs,)} if show_logs and asked.logs else {}
        query, gold = found
        fields = {"history": asked.history, **query, "evidence_ids": asked.evidence if cls.by_logs else (), **shown}
        labels = {"answer": gold, "category": asked.language, "asked": asked, "id": asked.id}
        return dspy.Example(**fields, **labels).with_inputs(*fields)

    @classmethod
    @abstractmethod
    def query_and_gold(cls, topic: Topic) -> tuple[dict[str, Any], Gold] | None:
        """The query fields and the gold answer of a topic; None where it does not hold what this part asks about."""


class PalRestate(PalBench):
    """Requirement restatement: BLEU against the whole requirement, or points for the implicit needs."""

    name = "palbench.restate"
    task = "requirement-restatement"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        **{bleu: lambda bleu=bleu: RestatementBleu(bleu) for bleu in BLEU},
        "g_score": lambda: Combined(NeedPoints(), RestatementBleu("bleu1")),
    }

    @classmethod
    def query_and_gold(cls, topic: Topic) -> tuple[dict[str, Any], Gold] | None:
        return {"question": topic.user_query}, topic.requirement


class PalGenerate(PalBench):
    """Solution generation: BLEU against the two solutions that the user likes, the better of both."""

    name = "palbench.generate"
    task = "solution-proposal"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        bleu: lambda bleu=bleu: GenerationBleu(bleu) for bleu in BLEU
    }
    by_logs = False

    @classmethod
    def query_and_gold(cls, topic: Topic) -> tuple[dict[str, Any], Gold] | None:
        return ({"question": topic.requirement}, topic.positives[0]) if topic.positives else None


class PalSelect(PalBench):
    """Solution selection: a point for each liked candidate of the two chosen, minus one for each disliked."""

    name = "palbench.select"
    task = "solution-selection"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"s_score": SelectionPoints}
    by_logs = False

    @classmethod
    def query_and_gold(cls, topic: Topic) -> tuple[dict[str, Any], Gold] | None:
        if len(topic.candidates) < 2:
            return None
        liked = [id for id, kind in topic.feedback.items() if kind == "pos"]
        return {"question": topic.requirement, "options": topic.options}, liked
