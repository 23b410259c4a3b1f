"""Finds BEAM's chats, in the folders of its repository or in the tables of the hub.

Found are the folder of a chat, or a folder with many of them at any depth; a parquet file of the
hub, the same rows as JSON, or a folder of parquet files. Where a chat was cut to the official limit
of tokens, `chat_trunecated.json` is read, as the official answering does. Where a chat of 10M
tokens is missing, its plans are joined. Chats are read batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ...errors import DataError
from ...records import read_json
from ...records.text_file import check_regular_file
from ...text import one_line
from ..dataset import FindingListener
from ..field_types import Parsed, Text, natural_sort_key
from ..json_lines import json_rows
from ..json_list import stream_list
from ..rows import Location, Row
from .reader import ChatSource, Questions

Size = Literal["100K", "500K", "1M", "10M"]

TRUNCATED_CHAT = "chat_trunecated.json"
CHAT = "chat.json"
QUESTIONS = Path("probing_questions", "probing_questions.json")
"""The file of a chat's questions, relative to the folder of the chat."""


class _HubRow(Row):
    """A row of the hub's tables: a chat and its questions."""

    conversation_id: Text
    chat: tuple[Any, ...]
    probing_questions: Annotated[Questions, Parsed]


def find_chats(path: Path, size: Size | None) -> list[ChatFolder | HubTable]:
    """Return the folders or the tables that hold the chats of a size, or of all sizes if None.

    Args:
        path: A folder of chats, the file of a chat in its folder, a table or a folder of tables.
        size: The size of the chats.

    Raises:
        DataError: There is no such chat.
    """
    folders = _find_folders(path)
    tables = [] if folders else _find_tables(path)
    if not folders and not tables:
        raise DataError(
            f"{path}: holds no {QUESTIONS} and no parquet file; "
            "give the folder of a chat, or of many"
        )

    chats: list[ChatFolder | HubTable] = [*folders, *tables]
    chats_of_size = [chat for chat in chats if size is None or chat.size == size]
    if not chats_of_size:
        raise DataError(
            f"{path}: holds no chat of the size {size}; leave the option out, or name another size"
        )
    return chats_of_size


def _find_folders(path: Path) -> list[ChatFolder]:
    """Return the folders with a chat and its questions, in the order of their numbers.

    Args:
        path: A folder that is searched at any depth, or the file of one chat. A file of a chat is
            read even if another one in its folder would be preferred.
    """
    if path.is_file() and (path.parent / QUESTIONS).is_file():
        root = path.parent
        chat_names = (path.name,)
    else:
        root = path
        chat_names = (TRUNCATED_CHAT, CHAT)
    if not root.is_dir():
        return []

    folders: list[Path] = []
    for questions_file in root.rglob(str(QUESTIONS)):
        # The questions are one folder below the chat.
        chat_folder = questions_file.parent.parent
        folders.append(chat_folder.resolve())
    folders.sort(key=lambda folder: natural_sort_key(str(folder)))
    return [ChatFolder(folder, _find_chat_files(folder, chat_names)) for folder in folders]


def _find_chat_files(folder: Path, chat_names: Sequence[str]) -> tuple[Path, ...]:
    """Return the first of the named files that is there, or else the files of the chat's plans."""
    for name in chat_names:
        if (folder / name).is_file():
            return (folder / name,)
    plans = folder.glob("plan-*/chat.json")
    return tuple(sorted(plans, key=lambda file: natural_sort_key(file.parent.name)))


def _find_tables(path: Path) -> list[HubTable]:
    """Return the parquet files of a folder, or the file itself."""
    if path.is_dir():
        return [HubTable(file) for file in sorted(path.rglob("*.parquet"))]
    return [HubTable(path)]


@dataclass(frozen=True)
class ChatFolder:
    """The folder of one chat."""

    folder: Path
    chat_files: tuple[Path, ...]
    """The file of the chat in the folder, or those of its plans in folders below."""

    @property
    def size(self) -> str:
        """Return the size of the chat, by which the folder above is named."""
        return self.folder.parent.name

    @property
    def files(self) -> list[Path]:
        """Return the files that are read."""
        return [*self.chat_files, self.folder / QUESTIONS]

    def open_chats(self, on_finding: FindingListener) -> Iterator[ChatSource]:
        """Yield the one chat of the folder with its questions; report which files it is read from.

        This is an iterator because `HubTable` has many chats.
        """
        chat_id = f"{self.size}/{self.folder.name}"
        location = Location(on_finding, chat_id)
        # The file of a whole chat lies in the folder itself, those of plans lie below it.
        has_whole_chat = any(file.parent == self.folder for file in self.chat_files)
        if not has_whole_chat:
            problem = f"has no chat.json; the chats of {len(self.chat_files)} plans are joined"
            location.warn("joined plans", problem)
            entries = _join_plans(self.chat_files)
        else:
            (chat_file,) = self.chat_files
            if chat_file.name == TRUNCATED_CHAT:
                problem = f"{TRUNCATED_CHAT} is read, as the official code does"
                location.warn("truncated chat", problem)
            entries = stream_list(chat_file)

        content = read_json(self.folder / QUESTIONS)
        questions = location.at(QUESTIONS.name).validate(Questions, content)
        yield ChatSource(chat_id, location, entries, questions)


def _join_plans(files: Sequence[Path]) -> Iterator[Mapping[str, list[Any]]]:
    """Yield the batches of each plan by its name, as the file of a whole chat holds them."""
    for file in files:
        yield {file.parent.name: list(stream_list(file))}


@dataclass(frozen=True)
class HubTable:
    """A file of the hub with one chat in each row."""

    path: Path

    @property
    def size(self) -> str:
        """Return the size of the chats, by which the hub names it: 100K-00000-of-00001.parquet."""
        return self.path.stem.partition("-")[0]

    @property
    def files(self) -> list[Path]:
        """Return the files that are read."""
        return [self.path]

    def open_chats(self, on_finding: FindingListener) -> Iterator[ChatSource]:
        """Yield the chats with their questions; report rows that cannot be read."""
        for row in self._rows(on_finding):
            chat_id = f"{self.size}/{row.conversation_id}"
            location = Location(on_finding, chat_id)
            yield ChatSource(chat_id, location, row.chat, row.probing_questions)

    def _rows(self, on_finding: FindingListener) -> Iterator[_HubRow]:
        if self.path.suffix == ".jsonl":
            for _, _, row in json_rows(self.path, _HubRow, on_finding):
                yield row
            return

        is_parquet = self.path.suffix == ".parquet"
        values = _parquet_rows(self.path) if is_parquet else stream_list(self.path)
        for number, value in enumerate(values, 1):
            row = Location(on_finding, f"entry {number}").validate(_HubRow, value)
            if row is not None:
                yield row


def _parquet_rows(path: Path) -> Iterator[Any]:
    """Yield the rows of a parquet file, one in memory at a time.

    Raises:
        DataError: The file cannot be read.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    check_regular_file(path)
    columns = list(_HubRow.model_fields)
    try:
        for batch in ParquetFile(path).iter_batches(1, columns=columns):
            yield from batch.to_pylist()
    # A ValueError comes from names that are not UTF-8.
    except (ArrowException, OSError, ValueError) as error:
        problem = one_line(str(error))
        raise DataError(f"{path}: cannot be read as a parquet file: {problem}") from error
