"""Support: how much of a gold answer stands in what a memory recalls, without asking for an answer.

    support = Support(budget=300)
    support.score(example, prediction).value        # share of the gold words that were recalled

A question costs a search and no call of a model that answers. The score is the share of the gold
answer's words, in the benchmark's own normalisation, that stand in the first tokens of the recalled
context. So a memory gains nothing by storing everything: what does not come first does not count.

Limits: words are compared and not meanings. A paraphrase of the answer scores 0, and an entry that
denies the answer scores 1.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import dspy

from ..errors import UserError
from ..records import Context, estimate_tokens
from ..text import one_line
from .plain_dates import find_dates, with_plain_dates
from .scorer import Score, Scorer
from .stored_words import EntryWords, StoredMemory, StoredWords
from .word_splitting import BY_SCRIPT, WordSplitter, words_by_script

SUPPORT = "support"
"""The name of the metric, and of the part of its scores."""
SUPPORT_TOKENS = 300
"""How many tokens of the recalled context count if nothing else is set."""

_MAX_QUOTED = 160
"""Characters of an entry that feedback quotes."""
_MAX_LISTED = 3
"""Most entries that feedback quotes for one reason."""

_FIRST_WITHOUT_SPACES = "\u2e80"
"""From this character on, scripts such as Chinese are written without spaces between words."""

_NO_ANSWERS = frozenset({"no answer", "unanswerable", "unknown"})
"""Gold answers of questions that cannot be answered, in lower case without punctuation.

Names may begin with these words, so only the whole answer counts.
"""
_BEGINNINGS_OF_NO_ANSWER = (
    "cannot be answered",
    "i do not know",
    "i dont know",
    "no information",
    "not mentioned",
)
"""How such answers begin that are sentences, as in "Not mentioned in the conversation"."""
_CHINESE_BEGINNINGS_OF_NO_ANSWER = ("不知道", "无法回答", "未提及", "没有提到", "没有提及")
"""The same in Chinese, which has no spaces between words."""


class _Piece(NamedTuple):
    """A recalled entry, or a line of a note."""

    id: str
    """The id of the entry; "" for a note."""
    text: str
    """What it says, with its date and its label."""
    tokens: int
    """Tokens of the line in a prompt."""


@dataclass(frozen=True)
class _Recalled:
    """What was recalled for a question: the part that counts, and the rest."""

    counted: tuple[_Piece, ...]
    """What stands within the budget; of the last piece, its beginning."""
    beyond: tuple[_Piece, ...]
    """What stands after it."""


@dataclass(frozen=True)
class _Loss:
    """Words of the gold answer that were lost at one stage."""

    words: tuple[str, ...]
    pieces: tuple[_Piece, ...]
    """Entries that have these words."""


class Support(Scorer):
    """The share of the gold answer's words that stand in the recalled context within a budget.

    Args:
        splitter: The benchmark's own way to cut texts into words.
        stem: What is compared of each word; the whole word by default.
        budget: How many tokens of the recalled context count.
    """

    needs_answer = False

    def __init__(
        self,
        splitter: WordSplitter = BY_SCRIPT,
        stem: Callable[[str], str] = str,
        budget: int = SUPPORT_TOKENS,
    ) -> None:
        self.splitter = splitter
        self._stem = stem
        self._stored_words = StoredWords()
        self._set_budget(budget)

    def _set_budget(self, budget: int) -> None:
        self.budget = budget
        # Scores of two budgets cannot be compared, so the title names it.
        self.title = f"{SUPPORT} within {budget} tokens"

    def with_budget(self, budget: int) -> Support:
        """Return a copy that counts so many tokens of the recalled context.

        Raises:
            UserError: The budget is below 1.
        """
        if budget < 1:
            raise UserError(f"support_tokens = {budget}: give 1 or more")
        new = copy.copy(self)
        new._set_budget(budget)
        return new

    def gold(self, example: dspy.Example) -> str:
        """Return the gold answer whose words are looked for; "" where there is none."""
        return _text_of_answer(example.get("answer"))

    def in_headline(self, example: dspy.Example) -> bool:
        """Return whether the gold answer can be recalled: it has words, and says something."""
        gold = self.gold(example)
        return bool(self._words(gold)) and not _says_nothing(gold)

    def counted_entries(self, prediction: dspy.Prediction) -> tuple[str, ...]:
        """Return the ids of the recalled entries that stand within the budget, in their order."""
        recalled = self._recalled(prediction)
        return tuple(piece.id for piece in recalled.counted if piece.id)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        gold_words = self._words(self.gold(example))
        recalled = self._recalled(prediction)
        counted_stems = self._stems_of(recalled.counted)
        missing = [word for word in gold_words if self._stem(word) not in counted_stems]

        num_found = len(gold_words) - len(missing)
        value = num_found / len(gold_words) if gold_words else 0.0
        memory: StoredMemory | None = prediction.get("memory")
        evidence_ids = frozenset(example.get("evidence_ids") or ())
        feedback = self._feedback(
            self.gold(example), value, missing, recalled, memory, evidence_ids
        )
        return Score(value, feedback, {SUPPORT: value}, is_about_memory=True)

    def _words(self, text: str) -> list[str]:
        """Return the words of a text, with its dates written in one way."""
        assert self.splitter is not None
        return self.splitter.split(with_plain_dates(text))

    def _stems_of(self, pieces: Iterable[_Piece]) -> set[str]:
        """Return what is compared of the words of some pieces."""
        stems: set[str] = set()
        for piece in pieces:
            stems.update(self._stems(piece.text))
        return stems

    def _stems(self, text: str) -> set[str]:
        """Return what is compared of the words of a text."""
        return set(map(self._stem, self._words(text)))

    def _recalled(self, prediction: dspy.Prediction) -> _Recalled:
        """Return what was recalled, cut at the budget."""
        context: Context = prediction.get("context") or Context()
        counted: list[_Piece] = []
        beyond: list[_Piece] = []
        tokens_left = self.budget
        # What is shown for want of a hit was not recalled.
        for piece in _pieces(context.without_fallback()):
            beginning = _beginning_within(piece, tokens_left)
            if beginning:
                counted.append(piece._replace(text=beginning))
            if len(beginning) < len(piece.text):
                beyond.append(piece._replace(text=piece.text[len(beginning) :]))
            tokens_left -= piece.tokens
        return _Recalled(tuple(counted), tuple(beyond))

    def _feedback(
        self,
        gold: str,
        value: float,
        missing: Sequence[str],
        recalled: _Recalled,
        memory: StoredMemory | None,
        evidence_ids: frozenset[str],
    ) -> str:
        """Say which words of the gold answer are missing, at which stage each was lost, and advise.

        Args:
            gold: The gold answer.
            value: The score.
            missing: The words that do not stand within the budget.
            recalled: What was recalled.
            memory: What was stored; None if that is not known.
            evidence_ids: Ids of the turns that hold the answer; none if they are not known.
        """
        budget = f"the first {self.budget} recalled tokens"
        if not self._words(gold):
            return f"The gold answer {gold!r} has no words, so nothing can be found of it."
        if not missing:
            return f"All words of {gold!r} stand in {budget}. Keep storing such facts."

        sentences = [f"{value:.0%} of the words of {gold!r} stand in {budget}."]
        stems_beyond = {piece: self._stems_of([piece]) for piece in recalled.beyond}
        beyond = self._find(missing, stems_beyond)
        if beyond.words:
            sentences.append(
                f"Recalled, but below the budget: {_listed(beyond)}."
                " Store it in a short entry of its own, and nothing twice."
            )
        remaining = [word for word in missing if word not in beyond.words]
        if remaining:
            sentences.extend(self._unrecalled(remaining, recalled, memory, evidence_ids))
        return " ".join(sentences)

    def _unrecalled(
        self,
        words: Sequence[str],
        recalled: _Recalled,
        memory: StoredMemory | None,
        evidence_ids: frozenset[str],
    ) -> Iterator[str]:
        """Yield sentences on words that were not recalled: whether they were stored, and advice.

        The arguments are those of `_feedback`.
        """
        # A user's own system does not show what it stores.
        if memory is None or not memory.names_sources:
            yield f"Not recalled: {', '.join(words)}."
            return

        recalled_ids = {piece.id for piece in (*recalled.counted, *recalled.beyond)}
        entries = self._stored_words.entries(memory, self._stems)
        stored = self._find(words, _unrecalled_stems(entries, recalled_ids, evidence_ids))
        if stored.words:
            yield f"Stored in an entry that was not recalled: {_listed(stored)}."
            yield "Store it in words that such a question would use, with names and dates."
        unsaid = [word for word in words if word not in stored.words]
        if unsaid:
            yield f"Never said in any entry about it: {', '.join(unsaid)}."
            yield "Store what was said in the speaker's words, with every name, number and date."

    def _find(self, words: Sequence[str], stems_by_piece: Mapping[_Piece, Iterable[str]]) -> _Loss:
        """Return which of some words stand in some pieces, and a few pieces that have them."""
        stems = {self._stem(word) for word in words}
        shared_stems: dict[_Piece, set[str]] = {}
        for piece, piece_stems in stems_by_piece.items():
            shared = stems.intersection(piece_stems)
            if shared:
                shared_stems[piece] = shared

        # The fewest pieces that have all words: the one that has most of those that are left.
        chosen: list[_Piece] = []
        open_stems = set[str]().union(*shared_stems.values())
        while open_stems:
            best = max(shared_stems, key=lambda piece: len(shared_stems[piece] & open_stems))
            chosen.append(best)
            open_stems -= shared_stems[best]

        all_shared = set[str]().union(*shared_stems.values())
        found = tuple(word for word in words if self._stem(word) in all_shared)
        return _Loss(found, tuple(chosen))


def _text_of_answer(answer: object) -> str:
    """Return a gold answer as a text: of a list the texts of its items, of None none."""
    if answer is None:
        return ""
    if isinstance(answer, list | tuple):
        return ", ".join(_text_of_answer(item) for item in answer)
    return str(answer)


def _says_nothing(gold: str) -> bool:
    """Return whether a gold answer says that the question cannot be answered."""
    # The benchmark's own words may be stems, or Chinese cut at spaces. The lists have neither.
    phrase = " ".join(words_by_script(gold))
    if phrase in _NO_ANSWERS:
        return True
    # A space follows, so that the last word is a whole one.
    if any(f"{phrase} ".startswith(f"{words} ") for words in _BEGINNINGS_OF_NO_ANSWER):
        return True
    return phrase.replace(" ", "").startswith(_CHINESE_BEGINNINGS_OF_NO_ANSWER)


def _pieces(context: Context) -> Iterator[_Piece]:
    """Yield what a prompt shows of a context, in its order: the entries, and then the notes."""
    for hit in context.hits:
        # The id takes tokens of a prompt, but is nothing that was said.
        yield _Piece(hit.id, hit.dated_text, estimate_tokens(hit.line()))
    for note in context.notes.values():
        for line in note.splitlines():
            yield _Piece("", line, estimate_tokens(line))


def _unrecalled_stems(
    entries: Sequence[EntryWords], recalled_ids: Set[str], evidence_ids: frozenset[str]
) -> dict[_Piece, Sequence[str]]:
    """Return the stems of the stored entries that were not recalled, and may hold the answer.

    Args:
        entries: All entries of the memory.
        recalled_ids: Ids of the entries that were recalled.
        evidence_ids: Ids of the turns that hold the answer; none if they are not known.
    """
    # Words such as "two" are in many entries. Where entries name the turns that they rest on, only
    # those that rest on the evidence can have said what the answer says.
    if evidence_ids and any(entry.sources for entry in entries):
        entries = [entry for entry in entries if evidence_ids.intersection(entry.sources)]
    unrecalled = [entry for entry in entries if entry.id not in recalled_ids]
    return {_Piece(entry.id, entry.text, 0): entry.stems for entry in unrecalled}


def _beginning_within(piece: _Piece, max_tokens: int) -> str:
    """Return the beginning of a piece's text whose line takes so many tokens.

    It ends with a whole word, and with a whole date: half of one could be read as another one.
    """
    if piece.tokens <= max_tokens:
        return piece.text
    text = piece.text
    # The id stands before the text.
    max_text_tokens = max_tokens - (piece.tokens - estimate_tokens(text))
    if max_text_tokens <= 0:
        return ""

    lengths = range(len(text) + 1)
    fitting = bisect_right(lengths, max_text_tokens, key=lambda n: estimate_tokens(text[:n]))
    length = fitting - 1
    while 0 < length < len(text) and _is_within_word(text[length - 1], text[length]):
        length -= 1
    for date in find_dates(text):
        if date.start() < length < date.end():
            length = date.start()
    return text[:length]


def _is_within_word(before: str, after: str) -> bool:
    """Return whether a text that is cut between two characters would end with half a word."""
    # Chinese and the like have no spaces between words: one may end after any character.
    has_spaces = max(before, after) < _FIRST_WITHOUT_SPACES
    return has_spaces and before.isalnum() and after.isalnum()


def _listed(loss: _Loss) -> str:
    """Return lost words with the first entries that have them: "rex (f3: Ann walks Rex)"."""
    quotes: list[str] = []
    for piece in loss.pieces[:_MAX_LISTED]:
        text = one_line(piece.text.strip(), _MAX_QUOTED)
        quotes.append(f"{piece.id}: {text}" if piece.id else text)
    return f"{', '.join(loss.words)} ({'; '.join(quotes)})"
