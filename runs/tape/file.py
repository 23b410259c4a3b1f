"""The file of a recording: JSON lines in one gzip stream, of answers and vectors, without prompts and addresses.

    header      version, command, models by role, limits
    lm          digest of a call, the predictor that made it, its answer, its failure or why it was refused
    embedder    name and figures of an embedder
    embed       digest of a text, its vector (float32, base64)
    end         number of lines and their digest; missing where the run did not end

Every line is flushed, so a killed run leaves a file whose lines can be unpacked; it is not played, for want of its end.
What is read is bounded, and no line is believed before it has the form of its kind.

Limits: the digest finds files that were altered or cut short by accident; it is no authentication. Answers are kept as
they are, and may speak of users.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from ...errors import DataError, UserError
from ...records.json_input import decode, refuse_other_than_file

SCHEMA = 1
"""Version of the file."""
MOST_LINE = 16 << 20
"""Most bytes of a line."""
MOST_BYTES = 1 << 30
"""Most bytes of all lines."""

_ENDS = {"stop", "length", "tool_call", "content_filter", "error"}
"""Why an output of DSPy's own clients ends."""

Count = Annotated[int, Field(ge=0, le=10**15)]
Amount = Annotated[float, Field(ge=0, le=1e15)]
Short = Annotated[str, Field(max_length=500)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Model(_Line):
    """A model of the run: as it was asked for, and what answers are filed under."""

    lm: Short
    model: Short
    max_tokens: Count | None = None
    """Most tokens of an answer, where it has a limit of its own."""
    window: Count | None = None
    """Tokens of a prompt and its answer, where it is known."""


class Header(_Line):
    """What was recorded."""

    kind: Literal["header"] = "header"
    recording: int = SCHEMA
    version: Short
    """Of Mempiler."""
    command: Short
    program: Short
    benchmark: Short
    about: dict[str, str | int | float | None]
    """Sizes, part, optimizer: what a user has to repeat."""
    models: dict[str, Model]
    """By role."""
    embedder: Short
    adapter: Short | None
    temperature: Amount | None
    limits: dict[str, Amount]

    @property
    def command_line(self) -> str:
        """The command that was recorded, without its models."""
        options = [f"--{name} {value}" for name, value in self.about.items() if value is not None]
        return " ".join(["mempiler", self.command, self.program, "--on", self.benchmark, *options])


class Called(_Line):
    """A tool that an output calls."""

    id: Short | None
    name: Short
    arguments: str
    """JSON, as the model wrote it."""


class Thought(_Line):
    """An output with the reasoning before it, or the tools that it calls."""

    text: str | None
    reasoning_content: str
    calls: list[Called] = []


class Answer(_Line):
    """What a model answered."""

    outputs: list[str | Thought | None]
    finish: list[str | None]
    """Why each output ended."""
    native: bool
    """Whether every output was a call of its own."""
    usage: dict[str, Count | dict[str, Count] | None]
    cost: Amount | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        fits = len(self.finish) == len(self.outputs) and {*self.finish} <= _ENDS
        if not self.outputs or (self.native and not fits):
            raise ValueError("outputs and their ends do not fit")
        return self


class Refused(_Line):
    """A call that was not made, for a limit was reached."""

    reason: Short
    struck: Short | None


class Failed(_Line):
    """A call that failed."""

    error: Short
    """Name of the error's class."""
    message: Short = ""
    status: int | None = None
    code: Short | None = None


class Call(_Line):
    """A call of a language model."""

    kind: Literal["lm"] = "lm"
    role: Short
    by: Short
    """The predictor."""
    key: Short
    number: Count
    """Which of the calls with this key, in the order in which they began."""
    parts: list[Short]
    """Digests of the messages."""
    found: Annotated[Answer | Failed | Refused, Field(union_mode="left_to_right")]
    seconds: Amount = 0.0


class Source(_Line):
    """An embedder."""

    kind: Literal["embedder"] = "embedder"
    name: Short
    dimension: Count
    unrelated: Annotated[list[float], Field(min_length=2, max_length=2)] | None
    query: Short = ""
    """What a query begins with."""
    passage: Short = ""

    @property
    def pair(self) -> tuple[float, float] | None:
        """Mean and deviation of the cosine of unrelated texts, if measured."""
        return None if self.unrelated is None else (self.unrelated[0], self.unrelated[1])


class Vector(_Line):
    """The vector of a text."""

    kind: Literal["embed"] = "embed"
    name: Short
    key: Short
    vector: str

    def array(self, path: Path) -> np.ndarray:
        """Its numbers.

        Args:
            path: The file that it is from.

        Raises:
            DataError: They are none.
        """
        try:
            found = np.frombuffer(base64.b64decode(self.vector, validate=True), dtype="<f4")
        except ValueError:
            found = np.zeros(0)
        if not len(found) or not np.isfinite(found).all():
            raise DataError(f"{path}: holds a vector that is none; record again")
        return found


class End(_Line):
    """The last line."""

    kind: Literal["end"] = "end"
    lines: Count
    sha256: Short


_READER: TypeAdapter[Any] = TypeAdapter(Annotated[Header | Call | Source | Vector | End, Field(discriminator="kind")])


def text_key(text: str) -> str:
    """What the vector of a text is known by."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def pack(array: np.ndarray) -> str:
    """The text of a vector."""
    return base64.b64encode(np.asarray(array, dtype="<f4").tobytes()).decode()


def public_name(name: str) -> str:
    """The name of a model or embedder without the folders of this machine that may be in it.

    Example:
        >>> from mempiler.runs.tape.file import public_name
        >>> public_name("gguf:/home/ann/small.gguf"), public_name("openai/gpt-4.1-mini")
        ('gguf:small.gguf', 'openai/gpt-4.1-mini')
    """
    for prefix in ("gguf:", f"{name.partition('/')[0]}/", ""):
        path = name.removeprefix(prefix) if name.startswith(prefix) else ""
        if path.startswith(("/", "~", ".")) or "\\" in path or (prefix == "gguf:" and "/" in path):
            return prefix + path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return name


class Writer:
    """Writes a new recording; may be used from many threads.

    Args:
        path: The file, which must not be there yet.

    Raises:
        UserError: It is there, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self._size = 0
        self._digest = hashlib.sha256()
        self._lock = threading.Lock()
        try:
            number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise UserError(f"--record {path}: is there already; delete it, or name another file") from None
        except OSError as error:
            raise self._unwritable(error) from error
        self._raw = os.fdopen(number, "wb", buffering=0)
        # Name and time would be in the file, too.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, mtime=0)

    def write(self, line: BaseModel) -> None:
        """Adds a line.

        Raises:
            UserError: The disk is full, or the recording is too large to be played.
        """
        found = json.dumps(line.model_dump(), ensure_ascii=False, separators=(",", ":"))
        text = f"{found}\n".encode(errors="replace")
        with self._lock:
            if self._file.closed:
                return  # a call that came back after the run had ended
            self._size += len(text)
            if self._size > MOST_BYTES or len(text) > MOST_LINE:
                raise UserError(f"--record {self.path}: grows too large to be replayed; record fewer questions")
            try:
                self._file.write(text)
                self._file.flush()
            except OSError as error:
                raise self._unwritable(error) from error
            self._digest.update(text)
            self.lines += 1

    def close(self, finished: bool) -> None:
        """Ends the file; one without any line is removed.

        Args:
            finished: Whether the run came to its end, so that the recording can be played.
        """
        if finished:
            self.write(End(lines=self.lines, sha256=self._digest.hexdigest()))
        with self._lock, suppress(OSError):
            self._file.close()
            self._raw.close()
        if self.lines <= 1 and not finished:
            self.path.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"--record {self.path}: cannot be written: {error.strerror or error}")


def read_header(path: Path) -> Header:
    """What a file is a recording of.

    Raises:
        DataError: It is no recording.
    """
    _, _, header = next(_parsed(path))
    return header


def read_lines(path: Path) -> Iterator[Call | Source | Vector]:
    """What a recording holds, after its header.

    Raises:
        DataError: The file is no recording, or was altered.
        UserError: It is cut short.
    """
    digest, count, end = hashlib.sha256(), 0, None
    for number, text, line in _parsed(path):
        if end is not None:
            raise DataError(f"{path}: line {number} is after the recording's end; record again")
        if isinstance(line, End):
            end = line
            continue
        count += 1
        digest.update(text)
        if not isinstance(line, Header):
            yield line
    if end is None:
        raise _cut(path)
    if (end.lines, end.sha256) != (count, digest.hexdigest()):
        raise DataError(f"{path}: was altered after it was recorded; record again")


def _parsed(path: Path) -> Iterator[tuple[int, bytes, Any]]:
    """Number, bytes and value of every line; the first is a header, and no other."""
    for number, text in enumerate(_bounded(path), 1):
        try:
            value = decode(text.decode())
            if number == 1:
                _check_version(path, value)
            line = _READER.validate_python(value)
            if isinstance(line, Header) != (number == 1):
                raise ValueError("header")
        except ValueError as error:
            if number == 1:
                raise _foreign(path) from error
            what = _problem(error)
            raise DataError(f"{path}: line {number} is no line of a recording{what}; record again") from error
        yield number, text, line


def _bounded(path: Path) -> Iterator[bytes]:
    """The lines of a packed file, no further than bounds allow."""
    size = 0
    try:
        refuse_other_than_file(path)
        with gzip.open(path, "rb") as file:
            while text := file.readline(MOST_LINE + 1):
                size += len(text)
                if len(text) > MOST_LINE or size > MOST_BYTES:
                    raise DataError(f"{path}: is larger than any recording")
                if not text.endswith(b"\n"):
                    raise _cut(path)
                yield text
    except FileNotFoundError:
        raise DataError(f"--replay {path}: no such file; make one with --record") from None
    except EOFError:
        raise _cut(path) from None
    except gzip.BadGzipFile as error:
        raise (_foreign(path) if not size else DataError(f"{path}: is damaged; record again")) from error
    except zlib.error as error:
        raise DataError(f"{path}: is damaged; record again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not size:
        raise _foreign(path)


def _check_version(path: Path, value: Any) -> None:
    version = value.get("recording") if isinstance(value, dict) else None
    if isinstance(version, int) and version > SCHEMA:
        raise DataError(f"{path}: was recorded by a newer Mempiler; update this one, or record again")


def _problem(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return ""
    where = ".".join(str(part) for part in error.errors()[0]["loc"])
    return f" ({where[:60]}: {error.errors()[0]['msg'][:80]})"


def _foreign(path: Path) -> DataError:
    return DataError(f"{path}: is no recording; make one with --record")


def _cut(path: Path) -> UserError:
    return UserError(f"{path}: is cut short: the run that was recorded did not come to its end; record again")
