"""PAL-Bench: does an assistant understand what its user needs and prefers (Huang et al. 2025)?

It knows device logs and earlier dialogues.

    palbench.restate    a brief query ──> the whole requirement      BLEU, or a judge's points
    palbench.generate   the requirement ──> a solution               BLEU against two liked ones
    palbench.select     the requirement, S1..S8 ──> two of them      S-score, -2 to 2 points
    palbench.dialogue   a simulated conversation                     see `dialogue`

The genuine files are `input.json` and `input_en.json` of hzp3517/Mem-PAL. The paper calls the data
CC BY-NC 4.0; the repository holds no licence. The sample is our own, Chinese and English.
`evidence_ids` names the log entries that the needs rest on; of preferences no evidence is known.

Limits: an S-score is -1 to 1, so that chance gives 0, and so does a failed question. BLEU rewards
wording. Scores are means over topics, not over users, as released.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

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
from .reader import files_of, read_palset
from .topics import QueryTopic, Topic

BLEU: Mapping[str, str] = {
    "bleu1": "BLEU-1",
    "bleu2": "BLEU-2",
    "bleu3": "BLEU-3",
    "bleu4": "BLEU-4",
}
"""The parts of a score, and what tables call them."""

POINTS = {"pos": 1, "neg": -1, "neu": 0}
"""The points for selecting a candidate, by what the user thinks of it."""

_OPINIONS = {
    "pos": "liked",
    "neg": "disliked",
    "neu": "neither liked nor disliked",
}

_LONG_RUN = re.compile(rf"[\u4e00-\u9fd5]{{{MAX_RUN_LENGTH}}}")
"""As many Chinese characters in a row as jieba may get at once."""


def words(text: str) -> list[str]:
    """Return the words of a text, split by jieba; blanks and punctuation marks are words, too.

    jieba's time can grow with the square of the number of Chinese characters in a row. So the text
    is cut after every `MAX_RUN_LENGTH` of them, and the pieces are split one by one. No text of
    usual length is cut.
    """
    pieces: list[str] = []
    start = 0
    for long_run in _LONG_RUN.finditer(text):
        pieces.append(text[start : long_run.end()])
        start = long_run.end()
    pieces.append(text[start:])

    all_words: list[str] = []
    for piece in pieces:
        all_words.extend(chinese_cutter().cut(piece))
    return all_words


def bleu(answer: str, references: Sequence[str]) -> tuple[float, ...]:
    """Return BLEU-1 to BLEU-4 of an answer, 0 to 1; of each order the best over the references.

    An empty answer, or one that shares no word, scores 0; so does any answer without a reference.
    """
    answer_words = words(answer)
    reference_words = [words(reference) for reference in references]
    scores: list[float] = []
    for order in (1, 2, 3, 4):
        order_scores = [sentence_bleu(answer_words, gold, order) for gold in reference_words]
        scores.append(max(order_scores, default=0.0))
    return tuple(scores)


def scaled(points: Sequence[float]) -> float:
    """Return the mean of some points on the paper's scale; 0 if there are none.

    0 to 2 points for implicit needs give a G-score of 0 to 100, and -2 to 2 points for selections
    an S-score of -100 to 100 (appendix B, Requirement Restatement and Solution Proposal).
    """
    if not points:
        return 0.0
    return 50 * sum(points) / len(points)


def mean_percentages(rows: Sequence[ScoredAnswer], columns: Mapping[str, str]) -> dict[str, float]:
    """Return the means of some parts of scores over all answers, in percent.

    A failed question has no parts and counts 0. A part that no score has gets no column.

    Args:
        rows: The answers with their scores. Parts are 0 to 1.
        columns: The parts to average, and the name of the table's column for each.
    """
    percentages: dict[str, float] = {}
    for part, column in columns.items():
        if any(part in row.parts for row in rows):
            values = [row.parts.get(part, 0.0) for row in rows]
            percentages[column] = 100 * sum(values) / len(values)
    return percentages


def selection_points(chosen: Sequence[str], feedback: Mapping[str, str]) -> int | None:
    """Return the points of a selection, -2 to 2; None if it is not two different candidates.

    Args:
        chosen: Ids of candidates.
        feedback: "pos", "neg" or "neu" by the id of each candidate.
    """
    if len(chosen) != 2 or len(set(chosen)) != 2 or not set(chosen) <= feedback.keys():
        return None
    return sum(POINTS[feedback[candidate_id]] for candidate_id in chosen)


class NeedsVerdict(NamedTuple):
    """What a judge thinks of a restatement."""

    points: float
    """0, .5, 1, 1.5 or 2."""
    analysis: str


class NeedsJudge(PromptJudge):
    """Judges restatements by `signatures.judges.JudgeImplicitNeeds`."""

    signature = JudgeImplicitNeeds

    def __call__(self, topic: Topic, answer: str) -> NeedsVerdict:
        """Judge a restatement, raising what `ask` does. An empty one gets 0 without a call."""
        if not answer.strip():
            return NeedsVerdict(0.0, "no answer was given")
        reply = self.ask(
            user_query=topic.user_query,
            requirement=topic.requirement,
            implicit_needs=list(topic.needs),
            prediction=answer,
        )
        return NeedsVerdict(reply.score.points, one_line(reply.analysis))


class RestatementBleu(Scorer):
    """BLEU against the whole requirement.

    Args:
        part: The order that counts, "bleu1" to "bleu4".
    """

    def __init__(self, part: str) -> None:
        self.part = part
        self.title = BLEU[part]

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        topic: Topic = example.asked.topic
        scores = bleu(answer_of(prediction), self.references(topic))
        parts = dict(zip(BLEU, scores, strict=True))
        return Score(parts[self.part], self.feedback(topic), parts)

    def references(self, topic: Topic) -> Sequence[str]:
        """Return the texts that an answer is compared with."""
        return [topic.requirement]

    def feedback(self, topic: Topic) -> str:
        """Say what a right answer holds."""
        return omitted_needs(topic)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return the paper's columns, 0 to 100."""
        return mean_percentages(rows, BLEU)


class GenerationBleu(RestatementBleu):
    """BLEU against the two solutions that the user likes; the better of both counts."""

    def references(self, topic: Topic) -> Sequence[str]:
        return topic.positives

    def feedback(self, topic: Topic) -> str:
        liked = " / ".join(topic.positives)
        disliked = " / ".join(topic.negatives)
        return f"The user likes: {liked}. The user rejects: {disliked}."


class NeedPoints(Scorer):
    """Points of a judge for the implicit needs that a restatement meets, 0 to 2."""

    title = "G-score"
    judge_roles: ClassVar[JudgeRoles] = {"judge": NeedsJudge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        topic: Topic = example.asked.topic
        points, analysis = self.judge()(topic, answer_of(prediction))
        feedback = "Right: both implicit needs are met."
        if points < 2:
            feedback = omitted_needs(topic)
            if analysis:
                feedback = f"{feedback} The judge says: {analysis}"
        return Score(points / 2, feedback, {"g_score": points / 2})

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return the paper's column, 0 to 100."""
        return mean_percentages(rows, {"g_score": "G-score"})


class SelectionPoints(Scorer):
    """A point for each liked candidate of the two chosen, minus one for each disliked."""

    title = "S-score"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Score the ids that `prediction.answer` names; 0 if they are not two of the candidates."""
        feedback: Mapping[str, str] = example.asked.topic.feedback
        chosen = parse_candidate_ids(answer_of(prediction), len(feedback))
        points = selection_points(chosen, feedback)
        if points is None:
            hint = (
                f"Name exactly two of {', '.join(feedback)}; "
                f"the answer names {', '.join(chosen) or 'none'}."
            )
            return Score(0.0, hint, {"s_score": 0.0, "liked": 0.0, "disliked": 0.0, "valid": 0.0})

        kinds = [feedback[candidate_id] for candidate_id in chosen]
        parts = {
            "s_score": points / 2,
            "liked": kinds.count("pos") / 2,
            "disliked": kinds.count("neg") / 2,
            "valid": 1.0,
        }
        opinions = [f"{name} is {_OPINIONS[feedback[name]]}" for name in chosen]
        liked = " and ".join(example.answer)
        return Score(points / 2, f"{'; '.join(opinions)}. The user likes {liked}.", parts)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return the paper's column, -100 to 100, and how many answers named no two candidates."""
        points = [2 * row.parts.get("s_score", 0.0) for row in rows]
        num_invalid = sum(row.failure is None and not row.parts.get("valid") for row in rows)
        return {"S-score": scaled(points), "invalid selections": num_invalid}


def omitted_needs(topic: Topic) -> str:
    """Say what a brief query leaves out."""
    needs = "; ".join(topic.needs)
    return f"What the query left unsaid: {needs}. In full: {topic.requirement}"


class PalQuestion(NamedTuple):
    """What a part of PAL-Bench asks about a topic."""

    inputs: dict[str, Any]
    """The query fields of the task, e.g. `question`."""
    answer: str | list[str]
    """The gold answer."""


class PalBench(Benchmark):
    """What the parts share: the file, the history of a topic, and how examples are made."""

    sample = "palset"
    categories: ClassVar[Mapping[str, str]] = {"zh": "Chinese", "en": "English"}
    logs_hold_answer: ClassVar[bool] = True
    """Whether the answer follows from the log entries that the needs rest on.

    These entries are then the evidence. An answer that depends on the user's preferences has no
    known evidence.
    """

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
        """Read the histories of all users, and make an example for each topic with a question.

        Args:
            path: `input.json`, `input_en.json`, or the folder of the released data.
            on_finding: Receives what is reported.
            language: The language to read from a folder. None prefers Chinese, the original.
            show_logs: Whether the prompt shows all logs of the current session beside what the
                memory recalls. In the paper such baselines are called "with log".
        """
        files = tuple(files_of(path, language))
        palset = read_palset(files, on_finding)
        examples: list[dspy.Example] = []
        for query_topic in palset.topics:
            # A topic may lack what this part of PAL-Bench asks about.
            question = cls.question_about(query_topic.topic)
            if question is not None:
                examples.append(cls._make_example(query_topic, question, show_logs))
        return Dataset(palset.histories, tuple(examples), files)

    @classmethod
    def _make_example(
        cls, query_topic: QueryTopic, question: PalQuestion, show_logs: bool
    ) -> dspy.Example:
        """Return the question about a topic with its history and labels."""
        inputs: dict[str, Any] = {
            "history": query_topic.history,
            **question.inputs,
            "evidence_ids": query_topic.evidence if cls.logs_hold_answer else (),
        }
        if show_logs and query_topic.logs:
            inputs["recent"] = (query_topic.logs,)
        labels = {
            "answer": question.answer,
            "category": query_topic.language,
            # Scorers read the needs, the candidates and the persona here.
            "asked": query_topic,
            "id": query_topic.id,
        }
        return dspy.Example(**inputs, **labels).with_inputs(*inputs)

    @classmethod
    @abstractmethod
    def question_about(cls, topic: Topic) -> PalQuestion | None:
        """Return what is asked about a topic; None if it lacks what this part asks about."""


class PalRestate(PalBench):
    """Requirement restatement: BLEU against the whole requirement, or points for the needs."""

    name = "palbench.restate"
    task = "requirement-restatement"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "bleu1": partial(RestatementBleu, "bleu1"),
        "bleu2": partial(RestatementBleu, "bleu2"),
        "bleu3": partial(RestatementBleu, "bleu3"),
        "bleu4": partial(RestatementBleu, "bleu4"),
        "g_score": lambda: Combined(NeedPoints(), RestatementBleu("bleu1")),
    }

    @classmethod
    def question_about(cls, topic: Topic) -> PalQuestion | None:
        return PalQuestion({"question": topic.user_query}, topic.requirement)


class PalGenerate(PalBench):
    """Solution generation: BLEU against the two solutions that the user likes."""

    name = "palbench.generate"
    task = "solution-proposal"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "bleu1": partial(GenerationBleu, "bleu1"),
        "bleu2": partial(GenerationBleu, "bleu2"),
        "bleu3": partial(GenerationBleu, "bleu3"),
        "bleu4": partial(GenerationBleu, "bleu4"),
    }
    logs_hold_answer = False

    @classmethod
    def question_about(cls, topic: Topic) -> PalQuestion | None:
        if not topic.positives:
            return None
        return PalQuestion({"question": topic.requirement}, topic.positives[0])


class PalSelect(PalBench):
    """Solution selection: a point for each liked candidate of two, minus one for each disliked."""

    name = "palbench.select"
    task = "solution-selection"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"s_score": SelectionPoints}
    logs_hold_answer = False

    @classmethod
    def question_about(cls, topic: Topic) -> PalQuestion | None:
        if len(topic.candidates) < 2:
            return None
        liked = [name for name, feedback in topic.feedback.items() if feedback == "pos"]
        inputs = {"question": topic.requirement, "options": topic.options}
        return PalQuestion(inputs, liked)
