r"""ImplexConv: the answer depends on an earlier statement that seems unrelated (MIT licence).

The genuine files are `ImplexConv_opposed.json` and `ImplexConv_supportive.json` of the hub sets
Kaylee0501/ImplexConv. Of each conversation they hold a text per session, and questions with the
text of their gold sessions. A text is "Speaker1: ...\n\nAssistant: ..." after a preamble. The form
is taken from its documentation (card and released code); the sample is our own. Card and code spell
the key of the reasoning differently: any key with "opposed" and "reason" in it counts.

Limits: written by a model, and undated. The judges' prompts are those of PGR and our own, not those
of ImplexConv's paper. Under "recall" the answer is not scored, and a row without reasoning asks
much of the context: its answer is advice not yet given. In ROUGE-L, which is our own code, case and
punctuation count, except for full stops, which end sentences. An empty text scores 0.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import dspy
from pydantic import ConfigDict

from ..errors import DataError
from ..records import History, Session, Turn, read_json
from .benchmark import Benchmark
from .common_scorers import Combined, JudgeScorer
from .dataset import Dataset, FindingListener
from .field_types import Text
from .judge import ReferenceVerdict, StrictAcknowledgementJudge
from .judged_recall import JudgedRecall
from .rows import Location, Row
from .scorer import Score, Scorer, answer_of
from .text_metrics import explain, sentence_bleu, squad_f1, squad_words
from .word_splitting import SQUAD

_ROUGE_EPSILON = 1e-8
"""What the released code adds to the denominator of F."""
_SPEAKER = re.compile(
    r"^[ \t*]*(Speaker ?\d+|Assistant|User)[ \t*]*:[ \t*]*", re.IGNORECASE | re.MULTILINE
)
_MIN_QUOTED_WORDS = 4
"""Fewer words that a session shares with a gold text are no evidence."""

PlainTexts = Mapping[str, Mapping[str, str]]
"""The turns of a conversation without punctuation, by the ids of their session and of the turn."""


class WordsAndSessions(Scorer):
    """Token F1, BLEU-1 to 3 and ROUGE-L of the answer, and the share of gold sessions recalled."""

    title = "token F1"
    splitter = SQUAD

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = squad_f1(answer, example.answer)
        bleu_scores = bleu(answer, example.answer)
        parts = {
            "f1": value,
            "bleu1": bleu_scores[0],
            "bleu2": bleu_scores[1],
            "bleu3": bleu_scores[2],
            "rouge_l": rouge_l(answer, example.answer),
        }

        context = prediction.get("context")
        if context is not None:
            recall = session_recall(example.evidence, context.without_fallback().sources)
            if recall is not None:
                parts["evidence"] = recall
        return Score(value, _explain_answer(example, answer, value), parts)


class AnswerJudgeScorer(JudgeScorer):
    """A judge of the answer, who knows the reason as well as the gold answer."""

    def gold(self, example: dspy.Example) -> str:
        return example.reference

    def feedback(self, example: dspy.Example, answer: str, value: float) -> str:
        return _explain_answer(example, answer, value)


class ReasoningRecall(JudgedRecall):
    """A judge of the retrieved context: does it acknowledge what the answer depends on?"""

    def references(self, example: dspy.Example) -> list[str]:
        return [_expected_reference(example)]

    def feedback(self, example: dspy.Example, verdicts: Sequence[ReferenceVerdict]) -> str:
        (verdict,) = verdicts
        reason = f" The judge says: {verdict.reason}" if verdict.reason else ""
        if verdict.present:
            return f"Right: what was retrieved acknowledges it.{reason}"
        missing = f"What was retrieved does not acknowledge: {_expected_reference(example)}"
        return f"{missing} Search for what may stand in the way or help.{reason}"


def _expected_reference(example: dspy.Example) -> str:
    """Return what the context of a question should acknowledge."""
    return example.reasoning or example.answer


def _explain_answer(example: dspy.Example, answer: str, value: float) -> str:
    """Tell an optimizer what was wrong with an answer, and the reason behind the right one."""
    return explain(answer, example.reference, value, example.evidence, split=squad_words)


def session_recall(evidence: Sequence[str], recalled: Sequence[str]) -> float | None:
    """Return the share of the evidence's sessions with at least one recalled turn.

    Args:
        evidence: Ids of the turns that hold the answer.
        recalled: Ids of the turns that were recalled.

    Returns:
        0 to 1; None without evidence.
    """
    gold_sessions = {turn_id.partition(":")[0] for turn_id in evidence}
    if not gold_sessions:
        return None
    recalled_sessions = {turn_id.partition(":")[0] for turn_id in recalled}
    return len(gold_sessions & recalled_sessions) / len(gold_sessions)


def bleu(answer: str, gold: str) -> tuple[float, float, float]:
    """Return BLEU-1 to BLEU-3 of an answer, 0 to 1."""
    answer_words = answer.split()
    gold_words = gold.split()
    return (
        sentence_bleu(answer_words, gold_words, 1),
        sentence_bleu(answer_words, gold_words, 2),
        sentence_bleu(answer_words, gold_words, 3),
    )


def rouge_l(answer: str, gold: str) -> float:
    """Return ROUGE-L's F of an answer, 0 to 1.

    Each distinct word counts once. Every sentence of the answer is compared with every sentence of
    the gold answer, and the words of their longest common subsequences are the shared words.
    """
    answer_sentences = _sentences(answer)
    gold_sentences = _sentences(gold)
    shared_words: set[str] = set()
    for gold_sentence in gold_sentences:
        for answer_sentence in answer_sentences:
            shared_words.update(_longest_common_subsequence(gold_sentence, answer_sentence))
    if not shared_words:
        return 0.0
    precision = len(shared_words) / _count_different_words(answer_sentences)
    recall = len(shared_words) / _count_different_words(gold_sentences)
    return 2 * precision * recall / (precision + recall + _ROUGE_EPSILON)


def _sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence of a text; sentences end at full stops."""
    sentences = [part.split() for part in text.split(".")]
    return [words for words in sentences if words]


def _count_different_words(sentences: Sequence[Sequence[str]]) -> int:
    words: set[str] = set()
    for sentence in sentences:
        words.update(sentence)
    return len(words)


def _longest_common_subsequence(gold: Sequence[str], answer: Sequence[str]) -> list[str]:
    """Return the words of a longest common subsequence of two sentences, last word first.

    Of several that are equally long it is the one that the released code takes.
    """
    # lengths[i][j] is the length of the longest one of the first i and the first j words.
    lengths = [[0] * (len(answer) + 1)]
    for gold_word in gold:
        above = lengths[-1]
        row = [0]
        for j, answer_word in enumerate(answer):
            if gold_word == answer_word:
                row.append(above[j] + 1)
            else:
                row.append(max(above[j + 1], row[-1]))
        lengths.append(row)

    common_words: list[str] = []
    i = len(gold)
    j = len(answer)
    while i > 0 and j > 0:
        if gold[i - 1] == answer[j - 1]:
            common_words.append(gold[i - 1])
            i -= 1
            j -= 1
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return common_words


class _ConversationRow(Row):
    """A conversation: a text for each session, and the questions about it."""

    conversation: tuple[str, ...]
    qa: tuple[Any, ...]


class _QuestionRow(Row):
    model_config = ConfigDict(extra="allow")

    question: Text
    answer: Text
    retrieved_conv: Any = None

    @property
    def reasoning(self) -> str:
        """The reason for the gold answer; "" where the row gives none.

        Only questions whose answer opposes what the user said before have one. Its field has
        several spellings, e.g. `opposed_reasoning`.
        """
        texts: list[str] = []
        for key, value in (self.model_extra or {}).items():
            is_reasoning = "opposed" in key.lower() and "reason" in key.lower()
            if is_reasoning and value:
                texts.append(str(value).strip())
        return " ".join(texts)

    @property
    def gold_sessions(self) -> list[Any]:
        """The texts of the gold sessions."""
        if not self.retrieved_conv:
            return []
        if isinstance(self.retrieved_conv, list):
            return self.retrieved_conv
        return [self.retrieved_conv]


class ImplexConv(Benchmark):
    """ImplexConv's implicit reasoning, answered with a response to the user, as in the PGR paper.

    Metrics: "recall" (a judge of the retrieved context, yes or no), "recall_strict" (a judge that
    demands more), "answer" (a judge of the answer) or "f1" (token F1 of the answer, for runs
    without a judge).
    """

    name = "implexconv"
    task = "personal-response"
    sample = "implexconv.json"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "recall": lambda: Combined(ReasoningRecall(), WordsAndSessions()),
        "recall_strict": lambda: Combined(
            ReasoningRecall(StrictAcknowledgementJudge), WordsAndSessions()
        ),
        "answer": lambda: Combined(AnswerJudgeScorer(), WordsAndSessions()),
        "f1": WordsAndSessions,
    }
    categories: ClassVar[Mapping[str, str]] = {"opposed": "opposed", "supportive": "supportive"}

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        """Read a file of conversations; its name says whether its questions are opposed."""
        values = read_json(path)
        if not isinstance(values, list) or not values:
            raise DataError(
                f"{path}: expected a list of {{conversation, qa}}, got {reprlib.repr(values)}"
            )

        file_category = "opposed" if "opposed" in path.stem.lower() else "supportive"
        histories: list[History] = []
        examples: list[dspy.Example] = []
        for number, value in enumerate(values):
            location = Location(on_finding, f"item {number}")
            row = location.validate(_ConversationRow, value)
            if row is None:
                continue
            sessions = _read_sessions(row, location)
            if not sessions:
                location.reject("no sessions", "holds no session with words")
                continue

            history = History(id=f"item-{number}", items=tuple(sessions))
            histories.append(history)
            examples.extend(_read_questions(row.qa, history, file_category, on_finding))
        return Dataset(tuple(histories), tuple(examples))


class SpokenTurn(NamedTuple):
    """A turn in the text of a session."""

    speaker: str
    words: str


def turns_of(text: str) -> list[SpokenTurn]:
    """Return the turns in the text of a session; text before the first speaker is dropped."""
    marks = list(_SPEAKER.finditer(text))
    turns: list[SpokenTurn] = []
    for number, mark in enumerate(marks, 1):
        # The words of a speaker end where the next one begins.
        end = marks[number].start() if number < len(marks) else len(text)
        words = text[mark.end() : end].strip()
        if words:
            turns.append(SpokenTurn(mark[1], words))
    return turns


def _read_sessions(row: _ConversationRow, location: Location) -> list[Session]:
    """Return the sessions in which something is said; report the others."""
    sessions: list[Session] = []
    for number, text in enumerate(row.conversation, 1):
        turns: list[Turn] = []
        for turn_number, (speaker, words) in enumerate(turns_of(text), 1):
            turns.append(Turn(id=f"D{number}:{turn_number}", speaker=speaker, text=words))
        if turns:
            sessions.append(Session(id=f"D{number}", turns=tuple(turns)))
        else:
            problem = "names no speaker such as 'Speaker1:'; passed over"
            location.at(f"session {number}").warn("empty session", problem)
    return sessions


def _read_questions(
    values: Sequence[Any], history: History, file_category: str, on_finding: FindingListener
) -> list[dspy.Example]:
    """Return the questions about a conversation; report those that are broken or odd.

    Args:
        values: The questions of the file.
        history: The conversation.
        file_category: The category of questions without a reasoning.
        on_finding: Receives what is reported.
    """
    plain_texts: dict[str, dict[str, str]] = {}
    for item in history.items:
        plain_texts[item.id] = {turn.id: _plain_text(turn.text) for turn in item.turns}

    examples: list[dspy.Example] = []
    for number, value in enumerate(values):
        location = Location(on_finding, f"{history.id}:{number}")
        row = location.validate(_QuestionRow, value)
        if row is None:
            continue
        if file_category == "opposed" and not row.reasoning:
            problem = "has no 'opposed reasoning'; the file's name says that it is opposed"
            location.warn("no reasoning", problem)

        evidence = _read_evidence(row, plain_texts, location)
        reference = row.answer
        if row.reasoning:
            reference = f"{row.answer} (The reason: {row.reasoning})"
        example = dspy.Example(
            id=location.where,
            history=history,
            question=row.question,
            answer=row.answer,
            reference=reference,
            reasoning=row.reasoning,
            category="opposed" if row.reasoning else file_category,
            evidence_ids=evidence,
            evidence=evidence,
        )
        examples.append(example.with_inputs("history", "question", "evidence_ids"))
    return examples


def _read_evidence(
    row: _QuestionRow, plain_texts: PlainTexts, location: Location
) -> tuple[str, ...]:
    """Return the ids of the turns that the gold sessions of a question quote, each once."""
    if not row.gold_sessions:
        location.warn("empty evidence", "has no 'retrieved_conv'; the question has no recall")
    evidence: list[str] = []
    for text in row.gold_sessions:
        turn_ids = _find_quoted_turns(_plain_text(str(text)), plain_texts)
        if not turn_ids:
            location.warn("dangling evidence", f"{reprlib.repr(text)} is in no session; dropped")
        evidence.extend(turn_ids)
    return tuple(dict.fromkeys(evidence))


def _find_quoted_turns(gold_text: str, plain_texts: PlainTexts) -> list[str]:
    """Return the ids of the turns that a gold text quotes.

    The gold text is that of one session. It may share turns such as "yes" with other sessions, so
    only the session of which it quotes the most words counts.

    Returns:
        The ids; none if no session has at least `_MIN_QUOTED_WORDS` words in common with the text.
    """
    best_turns: list[str] = []
    most_words = 0
    for turns in plain_texts.values():
        quotes = _quotes_of_session(gold_text, turns)
        num_words = sum(len(quote.split()) for quote in quotes.values())
        if num_words >= _MIN_QUOTED_WORDS and num_words > most_words:
            best_turns = list(quotes)
            most_words = num_words
    return best_turns


def _quotes_of_session(gold_text: str, turns: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that a gold text shares with the turns of a session, by the turn's id.

    Usually the gold text contains whole turns. Where it contains none, a turn may contain the whole
    gold text.

    Args:
        gold_text: The text, as `_plain_text` returns it.
        turns: The texts of the session's turns by their ids, likewise.
    """
    # The blanks around both texts keep a match from beginning or ending inside a word.
    whole_turns: dict[str, str] = {}
    for turn_id, turn_text in turns.items():
        if turn_text and f" {turn_text} " in f" {gold_text} ":
            whole_turns[turn_id] = turn_text
    if whole_turns:
        return whole_turns

    parts_of_turns: dict[str, str] = {}
    for turn_id, turn_text in turns.items():
        if gold_text and f" {gold_text} " in f" {turn_text} ":
            parts_of_turns[turn_id] = gold_text
    return parts_of_turns


def _plain_text(text: str) -> str:
    """Return the words of a text in lower case, without punctuation, one blank between them."""
    return " ".join(re.sub(r"\W+", " ", text.lower()).split())
