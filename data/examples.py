"""A user's own questions, given as `dspy.Example` objects instead of a file.

`Benchmark.from_examples` reads them with an `ExampleReader`. An example has `history`, `question`
and `answer`. `history` is a `History`, a list of chat messages (or a `dspy.History` of them), or a
list of such lists, one for each session. `id`, `category`, `evidence` (ids of the turns that hold
the answer; `evidence_ids` is the same) and `user` are optional. A metric sees every other field
too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import dspy
from pydantic import JsonValue

from ..errors import DataError
from ..records import History
from .empty_cells import is_blank, is_empty_cell

REQUIRED_FIELDS = ("history", "question", "answer")
OPTIONAL_FIELDS = ("id", "category", "evidence", "evidence_ids", "user")


class ExampleReader:
    """Read lists of examples of one benchmark.

    Equal histories of one user become one object, so that their memory is written once. Ids are
    unique in all lists together.
    """

    def __init__(self) -> None:
        self._histories: dict[tuple[str, str], History] = {}
        """Histories by their ids and digests."""
        self._ids: set[str] = set()
        self._given_ids: set[str] = set()
        """Ids that examples have, also of those that are still to be read."""

    def reserve_ids(self, examples: Iterable[dspy.Example]) -> None:
        """Keep the ids that examples have, so that no other example is named by one of them."""
        for example in examples:
            # Anything else is refused when it is read.
            if isinstance(example, dspy.Example | Mapping):
                self._given_ids.add(_text(example, "id"))

    def read(self, examples: Iterable[dspy.Example], list_name: str) -> list[dspy.Example]:
        """Return the examples of a list with the fields and inputs that programs take.

        Raises:
            DataError: An example does not fit; the message says which one, and why.
        """
        read: list[dspy.Example] = []
        for number, example in enumerate(examples):
            read.append(self._read_one(example, f"{list_name}[{number}]"))
        return read

    def _read_one(self, example: dspy.Example, where: str) -> dspy.Example:
        """Return an example with the fields and inputs that programs take."""
        fields = _checked_fields(example, where)
        history = self._history(fields, where)
        evidence = _evidence(fields, history, where)
        fields |= {
            "history": history,
            "question": str(fields["question"]),
            "answer": str(fields["answer"]),
            "id": self._unique_id(fields, history, where),
            "category": _text(fields, "category") or "all",
            # A label for scorers, and an input by which recall is measured.
            "evidence": evidence,
            "evidence_ids": evidence,
        }
        return dspy.Example(fields).with_inputs("history", "question", "evidence_ids")

    def _history(self, fields: Mapping[str, Any], where: str) -> History:
        """Return the history of an example; equal histories of one user are one object.

        It is named by the example's user, else by its own id, else by its digest.
        """
        value = fields["history"]
        if isinstance(value, dspy.History):
            value = list[JsonValue](value.messages)
        if isinstance(value, History):
            history = value
        else:
            try:
                history = History.parse(value, id="")
            except DataError as error:
                # Its messages begin with "history ID: "; here the id is empty.
                raise DataError(f"{where}: {str(error).removeprefix('history ')}") from error
        if not history.turns:
            raise DataError(f"{where}: its history holds no turns")

        name = _text(fields, "user") or history.id or history.digest[:12]
        if name != history.id:
            history = History(id=name, items=history.items)
        return self._histories.setdefault((history.id, history.digest), history)

    def _unique_id(self, fields: Mapping[str, Any], history: History, where: str) -> str:
        """Return the id of an example; one without is named by its history and a running number."""
        example_id = _text(fields, "id") or self._free_id(history)
        if example_id in self._ids:
            raise DataError(
                f"{where}: id {example_id!r} is used twice; give every example an id of its own"
            )
        self._ids.add(example_id)
        return example_id

    def _free_id(self, history: History) -> str:
        """Return the id of a history and the next running number that together name no example."""
        number = len(self._ids)
        while True:
            example_id = f"{history.id}:{number}"
            if example_id not in self._ids and example_id not in self._given_ids:
                return example_id
            number += 1


def _checked_fields(example: dspy.Example, where: str) -> dict[str, Any]:
    """Return the fields of an example, or of a mapping with the same fields.

    Raises:
        DataError: A field is missing or empty, or question or answer is neither text nor number.
    """
    if not isinstance(example, dspy.Example | Mapping):
        raise DataError(f"{where}: expected a dspy.Example, got {type(example).__name__}")

    fields = dict(example.items())
    missing_fields = [name for name in REQUIRED_FIELDS if name not in fields]
    if missing_fields:
        present_fields = ", ".join(map(str, fields)) or "nothing"
        raise DataError(
            f"{where}: lacks {', '.join(missing_fields)}; found: {present_fields}; "
            f"expected: {', '.join(REQUIRED_FIELDS)}"
        )
    for name in REQUIRED_FIELDS:
        if is_empty_cell(fields[name]):
            raise DataError(f"{where}: {name} is empty; fill it in, or leave the example out")
    for name in ("question", "answer"):
        if not isinstance(fields[name], str | int | float):
            kind = type(fields[name]).__name__
            raise DataError(f"{where}: {name} is {kind}, expected a text")
    return fields


def _text(fields: Mapping[str, Any] | dspy.Example, name: str) -> str:
    """Return a field as a text; "" if it is missing. The number 0 is not."""
    value = fields.get(name)
    return "" if is_blank(value) else str(value)


def _evidence(fields: Mapping[str, Any], history: History, where: str) -> tuple[str, ...]:
    """Return the ids of the turns that hold the answer, each once.

    Raises:
        DataError: It is no list of ids, or an id belongs to no turn of the history. Or there are
            two lists, which differ.
    """
    evidence = _turn_ids(fields, "evidence", where)
    evidence_ids = _turn_ids(fields, "evidence_ids", where)
    # Examples that were read before have both. Turns have no order here.
    if evidence and evidence_ids and set(evidence) != set(evidence_ids):
        raise DataError(
            f"{where}: evidence and evidence_ids are two names of one field, and differ; "
            "give one of them"
        )

    turn_ids = evidence or evidence_ids
    for turn_id in turn_ids:
        if turn_id not in history.turns:
            raise DataError(
                f"{where}: evidence {turn_id!r} is no turn of its history, "
                "whose turns are like D1:1"
            )
    return turn_ids


def _turn_ids(fields: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """Return the ids of a field, each once; none if the field is missing.

    Raises:
        DataError: It is no list. A text would be taken for a list of letters.
    """
    value = fields.get(name)
    if is_blank(value):
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise DataError(
            f"{where}: {name} is {value!r:.80}; give a list of turn ids, as in ['D1:1']"
        )
    return tuple(dict.fromkeys(map(str, value)))


class HeldOut(NamedTuple):
    """Examples in two parts."""

    kept: list[dspy.Example]
    held_out: list[dspy.Example]


def hold_out_a_third(examples: Sequence[dspy.Example], seed: int) -> HeldOut:
    """Hold out a third of some examples.

    With three or more conversations, whole conversations are held out, as many as come near a third
    of the examples. Where they make less than half of it, because the others are too long, single
    examples are held out instead. No part is empty.

    Args:
        examples: Examples with a `history`, which is their conversation.
        seed: Chooses what is held out.

    Raises:
        DataError: There are fewer than two examples.
    """
    if len(examples) < 2:
        raise DataError(
            f"trainset: a third of it would be the valset, and it has {len(examples)} example; "
            "add more, or give a valset"
        )
    rng = random.Random(seed)
    num_held_out = max(1, len(examples) // 3)
    held_out_positions = _positions_of_conversations(examples, num_held_out, rng)
    if 2 * len(held_out_positions) < num_held_out:
        held_out_positions = set(rng.sample(range(len(examples)), num_held_out))

    kept: list[dspy.Example] = []
    held_out: list[dspy.Example] = []
    for position, example in enumerate(examples):
        if position in held_out_positions:
            held_out.append(example)
        else:
            kept.append(example)
    return HeldOut(kept, held_out)


def _positions_of_conversations(
    examples: Sequence[dspy.Example], num_examples: int, rng: random.Random
) -> set[int]:
    """Return the positions of the examples of whole conversations, of about a number in all.

    Args:
        examples: Examples with a `history`, which is their conversation.
        num_examples: How many to choose; at most a half of the examples.
        rng: Chooses the conversations.

    Returns:
        Fewer than twice the number; none if there are fewer than three conversations.
    """
    positions_by_conversation: dict[str, list[int]] = {}
    for position, example in enumerate(examples):
        positions_by_conversation.setdefault(example.history.id, []).append(position)
    conversations = list(positions_by_conversation)
    if len(conversations) < 3:
        return set()

    chosen_positions: set[int] = set()
    for conversation in rng.sample(conversations, len(conversations)):
        positions = positions_by_conversation[conversation]
        missing = num_examples - len(chosen_positions)
        # A longer conversation would lead as far beyond the number as it is missed now.
        if len(positions) < 2 * missing:
            chosen_positions.update(positions)
        if len(chosen_positions) >= num_examples:
            break
    return chosen_positions
