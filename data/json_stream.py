"""A JSON list read entry by entry, so that a file of gigabytes needs no more memory than its largest entry.

An entry that ends beyond the piece that was read is tried again with twice as much text, so the work stays within a
small multiple of the file's size. An entry of more than `MOST` characters is refused: it is nearly always a text whose
closing quote is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from ..errors import DataError
from ..records.json_input import refuse_other_than_file, refuse_unfit, strict_decoder, unreadable

PIECE = 1 << 20
"""Characters that are read at once."""
MOST = 1 << 28
"""Most characters of one entry."""

_SPACE = re.compile(r"[ \t\n\r]*")
_LONGEST_TOKEN = 16
"""An error this close to the end of the buffer may be a token or an escape that continues in the next piece."""


def stream_list(path: Path, piece: int = PIECE) -> Iterator[Any]:
    """The entries of a JSON list, one after the other.

    Args:
        path: A UTF-8 file whose top level is a list.
        piece: Characters that are read at once.

    Raises:
        DataError: The file is missing, empty, no UTF-8 text, no JSON list, or ends too early; entries before the fault
            have been given by then.
    """
    try:
        refuse_other_than_file(path)
        with path.open(encoding="utf-8-sig") as file:
            yield from _Reader(path, file, piece).entries()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


class _Reader:
    """What was read and is not parsed yet."""

    def __init__(self, path: Path, file: TextIO, piece: int) -> None:
        self.path, self.file, self.piece = path, file, piece
        self.text, self.at, self.over = "", 0, False
        self.number = 0
        self._decoder = strict_decoder()

    def entries(self) -> Iterator[Any]:
        first = self.next_sign()
        if not first:
            raise DataError(f"{self.path}: the file is empty")
        if first != "[":
            raise DataError(
                f"{self.path}: expected a JSON list, but the file begins with {self.text[self.at :][:20]!r}"
            )
        self.at += 1
        if self.next_sign() == "]":
            self.at += 1
        else:
            yield from self._items()
        if self.next_sign():
            raise DataError(f"{self.path}: something follows the list after its entry {self.number}")

    def _items(self) -> Iterator[Any]:
        while True:
            self.number += 1
            yield self.entry()
            sign = self.next_sign()
            if sign not in (",", "]"):
                problem = f"expected ',' or ']', got {sign!r}" if sign else "the file ends there; is it cut short?"
                raise DataError(f"{self.path}: after entry {self.number}: {problem}")
            self.at += 1
            if sign == "]":
                return

    def next_sign(self) -> str:
        """The next character that is no white space, without taking it; "" at the end of the file."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def more(self) -> bool:
        """Reads on, as much again as is waiting to be parsed; False at the end of the file."""
        self.text = self.text[self.at :]
        self.at = 0
        new = self.file.read(max(self.piece, len(self.text))) if not self.over else ""
        self.over = not new
        self.text += new
        return bool(new)

    def entry(self) -> Any:
        """The entry that begins here."""
        self.next_sign()
        while True:
            try:
                value, end = self._decoder.raw_decode(self.text, self.at)
                length = end - self.at
                # A number this close to the end may continue in the next piece: "1." is 1 until a digit follows.
                if isinstance(value, int | float) and end > len(self.text) - _LONGEST_TOKEN and self.more():
                    continue
                refuse_unfit(value, self.text[self.at : self.at + length])
            except json.JSONDecodeError as error:
                goes_on = error.msg.startswith("Unterminated") or error.pos > len(self.text) - _LONGEST_TOKEN
                if goes_on and len(self.text) - self.at < MOST and self.more():
                    continue
                cut = "; is the file cut short?" if self.over else ""
                raise DataError(f"{self.path}: entry {self.number}: not valid JSON ({error.msg}){cut}") from error
            except RecursionError:
                raise DataError(f"{self.path}: entry {self.number}: nested too deeply") from None
            except ValueError as error:
                raise DataError(f"{self.path}: entry {self.number}: {error}") from error
            self.at += length
            return value
