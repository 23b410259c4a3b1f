"""Answers of one user that can be rated: `UserMemory.ask` keeps them, `UserMemory.feedback` rates.

An answer is kept with the state of the memory that it was given from: which sessions were stored,
which turns of open sessions, and what was recalled. So a question can be asked again later about
the same past. Nothing is kept where feedback is off.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from ...errors import ConflictError, StoreError, UnknownAnswerError, UserError
from ...memory.answers import (
    MAX_ANSWER_LENGTH,
    MAX_ANSWERS,
    MAX_CORRECTION_LENGTH,
    MAX_ENTRY_ID_LENGTH,
    MAX_OPEN_SESSIONS,
    MAX_RECALLED_ENTRIES,
    MAX_SOURCES,
    MAX_USEFUL_ENTRIES,
    EntrySources,
    KeptAnswer,
    StoredFeedback,
    check_answer_id,
)
from ...memory.incoming_items import utc_now
from ...memory.names import storable_text
from ...memory.results import Feedback
from ...records import Context, Session
from .memories import Memories
from .view import MemoryView

_log = logging.getLogger("mempiler.serving")

_KEPT_ANSWER = TypeAdapter(KeptAnswer)


@dataclass(frozen=True)
class GivenAnswer:
    """A question, and the answer that a memory gave to it."""

    id: str
    question: str
    answer: str
    context: Context
    """What was recalled for it."""
    shown_turns: frozenset[str] = frozenset()
    """Ids of stored turns that the model was shown beside the context, and of those that ask."""
    asking_turns: frozenset[str] = frozenset()
    """Ids of the stored turns that ask the question."""
    shows_history: bool = False
    """Whether the model was shown parts of the raw history."""


class UserAnswers:
    """Keeps the answers of one user, and takes the user's feedback on them.

    Args:
        memories: Program, store and language model.
        view: The memory of the user at the moment of the call.
    """

    def __init__(self, memories: Memories, view: MemoryView) -> None:
        self._answers = memories.store.answers
        self._items = memories.store.items
        self._view = view
        self._owner = view.snapshot.owner

    def keep(self, given: GivenAnswer) -> bool:
        """Store an answer, so that it can be rated; return whether it was stored.

        An answer that cannot be stored is an answer all the same, so no error is raised. A question
        or answer that is too long is not kept, and nor is one about an unknown or forgotten user.
        """
        try:
            answer = self._kept_form(given)
            return self._answers.keep(self._owner, answer, self._view.snapshot.forget_count)
        except (ValidationError, UserError):
            # A text is too long, or holds what no store takes; or the user was forgotten meanwhile.
            return False
        except StoreError:
            _log.warning("an answer could not be kept for feedback: the store failed")
            return False

    def _kept_form(self, given: GivenAnswer) -> KeptAnswer:
        """Return an answer with the state of the memory that it was given from.

        Raises:
            ValidationError: The question is empty, or a text is too long.
            UserError: A text cannot be stored.
        """
        snapshot = self._view.snapshot
        positions = [stored.position for stored in snapshot.pending_items]
        if self._view.document is not None:
            positions.append(self._view.document.position)

        sources = _sources(given)
        # What is stored is checked by the same rules as what is read: a row that cannot be read
        # would be in the way of everything else.
        return _KEPT_ANSWER.validate_python(
            {
                "id": given.id,
                "question": given.question,
                "answer": given.answer,
                "memory_version": snapshot.version,
                "position": max(positions, default=0),
                "open_turns": _turn_counts(snapshot.open_sessions, given.asking_turns),
                "entries": _recalled_entries(given.context),
                "sources": sources or (),
                "rests_on_all": sources is None,
                "at": utc_now(),
            }
        )

    def rate(
        self,
        answer_id: str,
        right: bool | None,
        correction: str | None,
        useful_entries: Iterable[str],
    ) -> Feedback:
        """Store feedback on an answer; arguments and errors are those of `UserMemory.feedback`."""
        if isinstance(useful_entries, str):
            # It could be iterated as well, character by character.
            raise UserError("useful_entries is one text; give a list of ids")
        entry_ids = tuple(dict.fromkeys(useful_entries))
        _check_feedback(right, correction, entry_ids)
        if correction is not None:
            # A correction says that the answer was wrong.
            right = False

        answer = self._answers.find(self._owner, check_answer_id(answer_id))
        if answer is None:
            raise _unknown_answer(answer_id)
        feedback = StoredFeedback(
            answer=answer.id,
            right=right,
            correction=correction,
            useful_entries=self._with_sources(answer, entry_ids),
            at=utc_now(),
        )
        if not self._answers.rate(self._owner, feedback, self._view.snapshot.forget_count):
            raise _unknown_answer(answer_id)
        return Feedback(
            answer_id=answer.id,
            right=feedback.right,
            correction=feedback.correction,
            useful_entries=entry_ids,
            memory_version=answer.memory_version,
            at=feedback.at or utc_now(),
        )

    def _with_sources(
        self, answer: KeptAnswer, entry_ids: Sequence[str]
    ) -> tuple[EntrySources, ...]:
        """Return the entries of some ids with their turns.

        They are looked for among what was recalled for the answer, in the memory as it is now, and
        among the stored turns: somebody may know better than the memory which turn was needed.

        Raises:
            UserError: There is no such entry or turn.
        """
        recalled = {entry.id: entry for entry in answer.entries}
        other_ids = [entry_id for entry_id in entry_ids if entry_id not in recalled]
        current = self._view.entries() if other_ids else {}
        turns = self._items.turns(self._owner, other_ids) if other_ids else {}

        entries: list[EntrySources] = []
        for entry_id in entry_ids:
            if entry_id in recalled:
                entries.append(recalled[entry_id])
            elif entry_id in current:
                sources = current[entry_id].entry.sources
                entries.append(EntrySources(entry_id, sources[:MAX_SOURCES]))
            elif entry_id in turns:
                entries.append(EntrySources(entry_id, (entry_id,)))
            else:
                raise UserError(
                    f"useful entry {entry_id!a:.100} is no entry of the memory and no stored turn;"
                    " give ids as the evidence of the answer has them"
                )
        return tuple(entries)


def _check_feedback(right: bool | None, correction: str | None, entry_ids: Sequence[str]) -> None:
    """Refuse feedback that says nothing, contradicts itself, or is too long.

    Raises:
        UserError: It does.
    """
    if right is None and correction is None and not entry_ids:
        raise UserError("the feedback says nothing; give right, a correction or useful_entries")
    # Callers without type checks may pass anything, here and below.
    if right not in (None, True, False):
        raise UserError(f"right is {right!a:.60}; give true or false, or leave it out")
    if right and correction is not None:
        raise UserError("an answer that is right has no correction; give one of the two")
    _check_entry_ids(entry_ids)
    if correction is not None:
        _check_correction(correction)


def _check_entry_ids(entry_ids: Sequence[str]) -> None:
    """Refuse too many ids of useful entries, and what can be no id.

    Raises:
        UserError: There is one of these.
    """
    if len(entry_ids) > MAX_USEFUL_ENTRIES:
        raise UserError(
            f"{len(entry_ids)} useful entries are too many; name at most {MAX_USEFUL_ENTRIES}"
        )
    for entry_id in entry_ids:
        is_text = isinstance(entry_id, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_text or len(entry_id) > MAX_ENTRY_ID_LENGTH:
            raise UserError(f"useful entry {entry_id!a:.100} is no id; give ids of entries")
        storable_text(entry_id)


def _check_correction(correction: str) -> None:
    """Refuse a correction that is no text, empty or too long.

    Raises:
        UserError: It is.
    """
    is_text = isinstance(correction, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or not storable_text(correction).strip():
        raise UserError("the correction is empty; say what the answer should have been")
    if len(correction) > MAX_CORRECTION_LENGTH:
        raise UserError(
            f"the correction has {len(correction)} characters; use at most {MAX_CORRECTION_LENGTH}"
        )


def feedback_is_off(tenant: str) -> ConflictError:
    """Return the error of feedback where no answers are kept; it says how to change that."""
    return ConflictError(
        f"no answers of tenant {tenant!r} are kept, so there is nothing to rate; an operator sets"
        " feedback=on behind the tenant's token, or starts with --feedback; in Python give"
        " feedback=True to program.memory"
    )


def _unknown_answer(answer_id: str) -> UnknownAnswerError:
    return UnknownAnswerError(
        f"there is no answer {answer_id!a:.100} to rate; kept are the newest {MAX_ANSWERS} of each"
        f" user since feedback is on, with texts of at most {MAX_ANSWER_LENGTH} characters, until"
        " something that they rest on is forgotten"
    )


def _sources(given: GivenAnswer) -> tuple[str, ...] | None:
    """Return the ids of the turns that an answer rests on; None if it may rest on any turn.

    Notes, such as a summary, and entries without sources do not say which turns they rest on.
    """
    hits = given.context.hits
    has_sources = all(hit.sources for hit in hits)
    if given.shows_history or given.context.notes or not has_sources:
        return None

    sources = set(given.shown_turns)
    for hit in hits:
        sources.update(hit.sources)
    if len(sources) > MAX_SOURCES:
        return None
    return tuple(sorted(sources))


def _recalled_entries(context: Context) -> list[dict[str, object]]:
    """Return the fields of `EntrySources` of the entries that were recalled for an answer."""
    entries: list[dict[str, object]] = []
    for hit in context.hits[:MAX_RECALLED_ENTRIES]:
        if len(hit.id) <= MAX_ENTRY_ID_LENGTH:
            entries.append({"id": hit.id, "sources": hit.sources[:MAX_SOURCES]})
    return entries


def _turn_counts(sessions: Sequence[Session], asking_turns: frozenset[str]) -> dict[str, int]:
    """Return how many turns each open session had before the question, by its id.

    Of too many sessions those that began last are returned.
    """
    counts: dict[str, int] = {}
    for session in sessions[-MAX_OPEN_SESSIONS:]:
        counts[session.id] = len(session.turns)
        for number, turn in enumerate(session.turns):
            if turn.id in asking_turns:
                counts[session.id] = number
                break
    return counts
