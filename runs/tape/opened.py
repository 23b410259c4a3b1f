"""The tape of a run: which file a setup names, and what a replay takes from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...engines.guard import Limits
from ...engines.models import is_local
from ...errors import DataError, UserError
from .file import Header, Model, public_name, read_header
from .player import Player
from .recorder import Recorder

if TYPE_CHECKING:
    from ..setup import Setup

Tape = Recorder | Player


@contextmanager
def taped(
    setup: Setup, command: str, program: str, about: Mapping[str, Any], tape: Tape | None = None
) -> Iterator[tuple[Setup, Tape | None]]:
    """The setup and the tape of a run; the setup of a replay has the models of its recording.

    Args:
        setup: Names the file, if any.
        command: "compile" or "evaluate".
        program: The method or saved program.
        about: Options of the command that a user has to repeat, beside those of the setup.
        tape: One that is open already, of a larger run.

    Raises:
        UserError: The file cannot be written or played, a model cannot be recorded, or a call was missing.
    """
    if tape is not None or (setup.record is None and setup.replay is None):
        yield setup, tape
        return
    if setup.replay is not None:
        opened: Tape = Player(Path(setup.replay))
        setup = settled(setup, header=opened.header)
    else:
        opened = _recorder(setup, command, program, about)
    finished = False
    try:
        yield setup, opened
        finished = True
    finally:
        opened.close(finished)


def settled(setup: Setup, given: frozenset[str] = frozenset(), header: Header | None = None) -> Setup:
    """The setup of a replay, with the models, embedder, adapter and temperature of its recording.

    Args:
        setup: Names the recording.
        given: Fields that were set on purpose, be it to their defaults.
        header: The recording's, if it has been read.

    Raises:
        UserError: The setup names others.
    """
    recorded = _named(header or read_header(Path(str(setup.replay))))
    defaults = {field.name: field.default for field in fields(setup)}
    for name, value in recorded.items():
        mine = getattr(setup, name)
        chosen = mine != defaults[name] or name in given
        if chosen and (public_name(mine) if isinstance(mine, str) else mine) != value:
            option = f"--{name.replace('_', '-')}"
            told = f"without {option}" if value is None else f"with {option} {value}"
            raise UserError(f"--replay {setup.replay}: was recorded {told}, not {mine}; leave {option} out")
    return replace(setup, **recorded)


def limits_of(setup: Setup, tape: Tape | None) -> Limits:
    """What a run may spend; a replay refuses what its recording did, so the same limits are not kept twice."""
    same = isinstance(tape, Player) and _limits(setup) == tape.header.limits
    return Limits() if same else setup.limits


def _recorder(setup: Setup, command: str, program: str, about: Mapping[str, Any]) -> Recorder:
    for name in filter(None, (setup.lm, setup.prompt_lm, setup.judge_lm)):
        if is_local(name):
            raise UserError(f"--record: {name} can be trained, and is not recorded; use gguf: or an endpoint")

    def header(models: dict[str, Model]) -> Header:
        sizes = {name: getattr(setup, name) for name in ("train", "dev", "test")}
        return Header(
            version=__version__,
            command=command,
            program=program if program.startswith("models:") else program.rstrip("/").rsplit("/", 1)[-1],
            benchmark=setup.benchmark,
            about={**sizes, "seed": setup.seed, **about},
            models=models,
            embedder=public_name(setup.embedder),
            adapter=setup.adapter,
            temperature=setup.temperature,
            limits=_limits(setup),
        )

    return Recorder(Path(str(setup.record)), header)


def _limits(setup: Setup) -> dict[str, float]:
    return {name: float(value) for name, value in asdict(setup.limits).items() if value is not None}


def _named(header: Header) -> dict[str, Any]:
    """What a header says of a setup."""
    lms = {role: found.lm for role, found in header.models.items()}
    if "task" not in lms:
        raise DataError("the recording names no task model; record again")
    named = {"lm": lms["task"], "prompt_lm": lms.get("prompt"), "judge_lm": lms.get("judge")}
    return {**named, "embedder": header.embedder, "adapter": header.adapter, "temperature": header.temperature}
