"""A user's own questions, given as `dspy.Example` objects instead of a file.

`Benchmark.from_examples` reads them with an `ExampleReader`. An example has `history`, `question`
and `answer`. `history` is a `History`, a list of chat messages, or a list of such lists, one for
each session. `id`, `category`, `evidence` (ids of the turns that hold the answer; `evidence_ids` is
the same) and `user` are optional. A metric sees every other field too.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import dspy
from pydantic import BaseModel, JsonValue

from ..errors import DataError
from ..records import History

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
        example_id = _text(fields, "id") or f"{history.id}:{len(self._ids)}"
        if example_id in self._ids:
            raise DataError(
                f"{where}: id {example_id!r} is used twice; give every example an id of its own"
            )
        self._ids.add(example_id)
        return example_id


def _checked_fields(example: dspy.Example, where: str) -> dict[str, Any]:
    """Return the fields of an example, or of a mapping with the same fields.

    Raises:
        DataError: A field is missing, or question or answer is neither a text nor a number.
    """
    if not isinstance(example, dspy.Example | Mapping):
        raise DataError(f"{where}: expected a dspy.Example, got {type(example).__name__}")

    fields = dict(example.items())
    missing_fields = [name for name in REQUIRED_FIELDS if _is_missing(fields.get(name))]
    if missing_fields:
        present_fields = ", ".join(map(str, fields)) or "nothing"
        raise DataError(
            f"{where}: lacks {', '.join(missing_fields)}; found: {present_fields}; "
            f"expected: {', '.join(REQUIRED_FIELDS)}"
        )
    for name in ("question", "answer"):
        if not isinstance(fields[name], str | int | float):
            kind = type(fields[name]).__name__
            raise DataError(f"{where}: {name} is {kind}, expected a text")
    return fields


def _is_missing(value: object) -> bool:
    """Return whether a field is None, or NaN, which is what data frames have in empty cells."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(fields: Mapping[str, Any], name: str) -> str:
    """Return a field as a text; "" if it is missing. The number 0 is not."""
    value = fields.get(name)
    return "" if _is_missing(value) else str(value)


def _evidence(fields: Mapping[str, Any], history: History, where: str) -> tuple[str, ...]:
    """Return the ids of the turns that hold the answer, each once.

    Raises:
        DataError: It is no list of ids, or an id belongs to no turn of the history. Or there are
            two lists, which differ.
    """
    evidence = _turn_ids(fields, "evidence", where)
    evidence_ids = _turn_ids(fields, "evidence_ids", where)
    # Examples that were read before have both.
    if evidence is not None and evidence_ids is not None and evidence != evidence_ids:
        raise DataError(
            f"{where}: evidence and evidence_ids are two names of one field, and differ; "
            "give one of them"
        )

    turn_ids = evidence if evidence is not None else evidence_ids or ()
    for turn_id in turn_ids:
        if turn_id not in history.turns:
            raise DataError(
                f"{where}: evidence {turn_id!r} is no turn of its history, "
                "whose turns are like D1:1"
            )
    return turn_ids


def _turn_ids(fields: Mapping[str, Any], name: str, where: str) -> tuple[str, ...] | None:
    """Return the ids of a field, each once; None if the field is missing.

    Raises:
        DataError: It is no list. A text would be taken for a list of letters.
    """
    value = fields.get(name)
    if _is_missing(value):
        return None
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

    With three or more conversations, whole conversations are held out until a third of the examples
    is reached, so it may be more. No part is empty.

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
    conversations = list(dict.fromkeys(example.history.id for example in examples))
    if len(conversations) < 3:
        order = rng.sample(range(len(examples)), len(examples))
        held_out_positions = set(order[:num_held_out])
    else:
        held_out_positions = set[int]()
        shuffled = rng.sample(conversations, len(conversations))
        # The last conversation stays, even if it holds nearly all of the examples.
        for conversation in shuffled[:-1]:
            if len(held_out_positions) >= num_held_out:
                break
            for position, example in enumerate(examples):
                if example.history.id == conversation:
                    held_out_positions.add(position)

    kept: list[dspy.Example] = []
    held_out: list[dspy.Example] = []
    for position, example in enumerate(examples):
        if position in held_out_positions:
            held_out.append(example)
        else:
            kept.append(example)
    return HeldOut(kept, held_out)


def digest_of_examples(examples: Sequence[dspy.Example]) -> str:
    """Return the sha256 of all fields of some examples: a metric may read any of them.

    It is the same in every process, so that a resumed run can be compared with its beginning.
    """
    rows = [_comparable_value(example) for example in examples]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _comparable_value(value: object) -> JsonValue:
    """Return JSON that stands for the value of a field; equal for equal content."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, History):
        return [value.id, value.digest]
    if isinstance(value, dspy.Example):
        return _comparable_mapping(dict(value.items()))
    if isinstance(value, BaseModel):
        return _comparable_mapping(value.model_dump())
    if isinstance(value, Mapping):
        return _comparable_mapping(value)
    if isinstance(value, list | tuple):
        return [_comparable_value(entry) for entry in value]
    if isinstance(value, set | frozenset):
        entries = [_comparable_value(entry) for entry in value]
        return sorted(entries, key=json.dumps)
    # An array's `repr` leaves out its middle.
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        return _comparable_value(to_list())
    # The address of an object differs between processes.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _comparable_mapping(mapping: Mapping[Any, Any]) -> JsonValue:
    """Return the pairs of a mapping, sorted: the order in which fields were set says nothing."""
    pairs: list[JsonValue] = []
    for key, value in mapping.items():
        pairs.append([_comparable_value(key), _comparable_value(value)])
    return sorted(pairs, key=json.dumps)
