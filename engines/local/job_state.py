"""Checkpoints of training jobs: tensors and plain values, a file written in one piece; no code of it is ever run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import UserError, one_line


def write_checkpoint(folder: str | None, name: str, state: dict[str, Any]) -> Path:
    """Writes a checkpoint in one piece.

    Raises:
        UserError: There is no folder.
    """
    import torch

    if folder is None:
        raise UserError("a checkpoint needs a folder; set output_dir in train_kwargs")
    path = Path(folder) / f"{name}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)
    return path


def read_checkpoint(path: str | Path, *parts: str) -> dict[str, Any]:
    """Reads a checkpoint that has these parts.

    Raises:
        UserError: The file is none.
    """
    import torch

    try:
        # Only tensors and plain values are read: no code of the file is run.
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {part: state[part] for part in parts}
    except Exception as error:  # torch raises errors of pickle, which is not imported here
        raise UserError(f"{path}: is no checkpoint of a local job: {one_line(error, 120)}") from error
