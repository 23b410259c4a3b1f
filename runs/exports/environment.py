"""What an exported folder rests on: `export.json` names benchmark, method and reward.

    export.json ── open ──> Environment: histories, what completions are worth

It is opened where training runs. The file holds no question and no answer. The benchmark's file is read where it lies,
and its digest must be the one that was exported; so must the method's prompts and settings. Keys are those of the
environment variables of whoever trains. Addresses and paths are in the file: edit those that differ on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict, ValidationError

from ...engines.guard import Guard
from ...engines.meter import Meter, MeteredLM
from ...engines.models import language_model
from ...errors import DataError, ProgramError, UserError, misfit
from ...optimizers.logo_grpo.given import Rewarded, Worth
from ...optimizers.logo_grpo.policy import by_history
from ...optimizers.logo_grpo.reward import RewardSettings, released_f1
from ...optimizers.logo_grpo.rollout import head
from ...optimizers.metric_views import MetricViews
from ...programs.identity import Identities
from ...programs.program import MemoryProgram
from ...programs.remember import MemoryCache
from ...records import History, read_json
from ..experiment import Part
from ..folder import RunFolder
from ..runtime import Runtime
from ..setup import Setup
from ..tiny import resolve

FILE = "export.json"
_SETUP = ("benchmark", "data", "options", "lm", "api_base", "lm_settings", "embedder", "embedder_api_base", "adapter")
_SETUP += ("train", "dev", "test", "seed", "timeout", "retries", "lm_deadline")
"""Fields of a setup that an export keeps."""


class Export(BaseModel):
    """What `export.json` holds."""

    model_config = ConfigDict(extra="forbid")

    method: str
    config: dict[str, Any] = {}
    allow_code: bool = False
    part: Part = "train"
    sessions: int | None = None
    """Sessions of a history that are written; all of them if None."""
    reward: dict[str, Any] = {}
    setup: dict[str, Any]
    benchmark_sha256: str = ""
    program: str = ""
    """Digest of the method's prompts and settings."""


class Environment:
    """A benchmark and a method, for trainers that sample themselves.

    Args:
        export: What it is made of.
        folder: Where its file is.

    Raises:
        UserError: The benchmark or the method gives no reward to train on.
    """

    def __init__(self, export: Export, folder: Path) -> None:
        self.export = export
        self.setup = Setup(**export.setup, config=export.config, allow_code=export.allow_code)
        self._runtime = Runtime(self.setup, Meter(), Guard(), RunFolder(folder))
        self.benchmark = self.setup.load(compiling=True)
        if self.benchmark.scorer.asked:
            reason = "is scored by a judge, which is no reward to train on; choose a metric"
            raise UserError(f"{self.benchmark.name} {reason}")
        self.program: MemoryProgram = self._runtime.program(export.method, self.benchmark, MemoryCache())
        adapter = self.setup.adapter or self.program.adapter
        self.program.adapter = "chat" if adapter == "auto" else adapter
        if not self.program.method.writer.predictors_below():
            raise UserError(f"{export.method} writes without a language model, so there is nothing to train")

    @classmethod
    def open(cls, path: str | Path) -> Environment:
        """Opens an exported environment.

        Args:
            path: Its `export.json`.

        Raises:
            DataError: The benchmark's file is another one now.
            ProgramError: The file is none, or the method has other prompts or settings now.
        """
        path = Path(path)
        try:
            export = Export.model_validate(read_json(path))
        except ValidationError as error:
            raise ProgramError(f"{path}: is no export: {misfit(error)}; export anew") from error
        found = cls(export, path.parent)
        now = found.digests
        if now["benchmark_sha256"] != export.benchmark_sha256:
            where = found.benchmark.source.path
            raise DataError(f"{where}: is not the data that was exported (sha256 differs); export anew")
        if now["program"] != export.program:
            raise ProgramError(f"{path}: {export.method} has other prompts or settings than were exported; export anew")
        return found

    @property
    def digests(self) -> dict[str, str]:
        """What identifies data and method."""
        return {"benchmark_sha256": self.benchmark.source.sha256, "program": Identities().of_program(self.program)}

    @cached_property
    def histories(self) -> Mapping[str, History]:
        """The histories of the exported part, whole, by their ids."""
        return {history.id: history for history in self._asked if len(history)}

    @cached_property
    def rewarded(self) -> Rewarded:
        """Writes and rewards."""
        try:
            reward = RewardSettings(**self.export.reward)
        except TypeError as error:
            known = ", ".join(vars(RewardSettings()))
            raise UserError(f"--reward-set: {error}; it has: {known}") from error
        return Rewarded(
            self.program,
            released_f1 if reward.metric == "released" else MetricViews(self.benchmark).number,
            self._questions,
            self._reader if self.program.task.predictors() else None,
            reward,
            self.setup.seed,
        )

    def past(self, id: str) -> History:
        """The sessions of a history that are written.

        Raises:
            UserError: There is no such history.
        """
        if id not in self.histories:
            raise UserError(f"{id!r} is no history of the part {self.export.part} of {self.benchmark.name}")
        return head(self.histories[id], self.export.sessions or len(self.histories[id]))

    def worth(self, id: str, said: Sequence[str]) -> Worth:
        """What a history is worth that was written with given completions."""
        written = self.rewarded.written(self.past(id), said)
        return self.rewarded.worth(written, self.histories[id])

    @cached_property
    def _reader(self) -> MeteredLM:
        """The model of the setup, which answers the questions rewards come from."""
        setup, name = self.setup, resolve(self.setup.lm, self.setup.seed)
        limits = {"timeout": setup.timeout, "retries": setup.retries, "deadline": setup.lm_deadline}
        settings = {"temperature": 0.0, **setup.lm_settings}
        return language_model(name, api_base=setup.api_base, cache=False, **limits, **settings)

    @cached_property
    def _asked(self) -> Mapping[History, list[dspy.Example]]:
        split = self.setup.split(self.benchmark)
        chosen = self.benchmark.examples if self.export.part == "all" else getattr(split, self.export.part)
        return dict(by_history(chosen))

    def _questions(self, history: History, sessions: int) -> Sequence[dspy.Example]:
        found = self.benchmark.questions_after(history, sessions, self._asked[history])
        return [example for example in found if self.benchmark.counts(example)]


def kept(setup: Setup) -> dict[str, Any]:
    """What an export keeps of a setup.

    Raises:
        UserError: The adapter asks its endpoint what it can, which is not the trainer's.
    """
    if setup.adapter == "auto":
        raise UserError("--adapter auto asks an endpoint what it can; choose chat, json or compact for an export")
    data = str(Path(setup.data).absolute()) if setup.data else None
    return {name: value for name, value in asdict(replace(setup, data=data)).items() if name in _SETUP}
