"""Separate weights: one model for each trained role of a program, behind one LM.

    start ── copied per role ──> models["extract"], models["manage"]        who asks decides which of them answers

A role is a predictor, known by its path in the program. Whoever is none (a reader, a judge) is answered by the start,
which is not trained. On disk it is a folder that `language_model` takes like that of one model:

    FOLDER/roles.json        the path of every role, by its name
    FOLDER/roles/NAME/       its model
    FOLDER/start/            the model for everyone else

Limits: every role's copy takes the memory of a whole model, with LoRA too (an adapter over a base of its own). A
program of another method finds a role where its predictor has the same path; its other predictors are answered by the
start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import dspy

from ...errors import UserError
from .model import ROLES, LocalModel


class RoleModels(LocalModel):
    """A model, and beside it one for each role.

    Args:
        start: Answers whoever has no role.
        paths: The predictor's path in the program, by the name of the role.
        models: The models by role; copies of the start if None.
    """

    def __init__(
        self, start: LocalModel, paths: Mapping[str, str], models: Mapping[str, LocalModel] | None = None
    ) -> None:
        super().__init__(start.model, start.tokenizer, start.name)
        self.half = start.half
        self.paths = dict(paths)
        self.models = dict(models or {name: start.copy() for name in paths})

    @classmethod
    def open(cls, folder: str | Path) -> LocalModel:
        """Loads what `save` wrote; any other name is that of one model, see `LocalModel.load`.

        Raises:
            MissingDependencyError: torch, transformers or peft is not installed.
            UserError: There is no such model, or the folder is damaged.
        """
        path = Path(folder)
        if not (path / ROLES).is_file():
            return LocalModel.load(folder)
        try:
            paths = json.loads((path / ROLES).read_text(encoding="utf-8"))
            right = all(isinstance(where, str) and Path(name).name == name for name, where in paths.items())
        except (OSError, ValueError, AttributeError):
            right, paths = False, {}
        if not right or not paths:
            raise UserError(f"{path / ROLES}: does not name the roles of models; train again")
        models = {name: LocalModel.load(path / "roles" / name) for name in paths}
        found = cls(LocalModel.load(path / "start"), paths, models)
        found.name = str(folder)
        return found

    def by_path(self) -> dict[str, LocalModel]:
        """The models by the path of the predictor they answer."""
        return {path: self.models[name] for name, path in self.paths.items()}

    @property
    def fingerprint(self) -> str:
        """A digest of the weights of all of them."""
        found = [super().fingerprint, *(self.models[name].fingerprint for name in sorted(self.models))]
        return hashlib.sha256("".join(found).encode()).hexdigest()

    def copy(self) -> RoleModels:
        """An independent copy of all of them."""
        return RoleModels(super().copy(), self.paths, {name: model.copy() for name, model in self.models.items()})

    def save(self, folder: str | Path, merge: bool = False) -> Path:
        """Writes all of them beside each other, for `open`."""
        path = Path(folder)
        super().save(path / "start", merge)
        for name, model in self.models.items():
            model.save(path / "roles" / name, merge)
        (path / ROLES).write_text(json.dumps(self.paths, indent=1), encoding="utf-8")
        return path


def asking() -> str:
    """The path of the predictor that asks; empty if none does."""
    modules = dspy.settings.caller_modules or []
    return str(getattr(modules[-1], "path", "")) if modules else ""
