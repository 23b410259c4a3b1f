"""The folders of exports: a package for `verifiers`, a dataset and a reward module for TRL.

    OUT/pyproject.toml, README.md, PACKAGE/__init__.py, PACKAGE/export.json     verifiers
    OUT/export.json, reward.py, README.md, rows.jsonl                           trl

`rows.jsonl` holds prompts, and prompts hold conversations. It is written at once for generated data and bundled
samples; for a file of one's own it is written by `python reward.py`, where the file is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import UserError
from ..home import make_folder
from .environment import FILE, Environment, Export, exported
from .rows import ROWS, write_rows

Kind = Literal["verifiers", "trl"]


@dataclass(frozen=True)
class Written:
    """An exported folder."""

    kind: Kind
    folder: Path
    name: str
    """Of the package, or of the module."""
    histories: int
    rows: int | None = None
    """Rows of a dataset, where it was written."""

    def summary(self) -> dict[str, object]:
        """As JSON."""
        return {**vars(self), "folder": str(self.folder)}


def write(kind: Kind, export: Export, folder: Path) -> Written:
    """Writes an export.

    Args:
        kind: For whom.
        export: What it is made of, without digests.
        folder: Where to.

    Raises:
        UserError: The folder is not empty or cannot be written, or there is nothing to train on.
    """
    make_folder(folder)
    if any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; choose another --out")
    environment, export = exported(export, folder)
    if not environment.histories:
        raise UserError(f"the part {export.part} of {environment.benchmark.name} has no history; choose another --part")
    name = re.sub(r"\W+", "_", f"mempiler_{environment.program.name}_{environment.benchmark.name}").lower()
    files = _verifiers(environment, name) if kind == "verifiers" else _trl(environment)
    holds = f"{name}/{FILE}" if kind == "verifiers" else FILE
    for path, text in {**files, holds: export.model_dump_json(indent=1) + "\n"}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    rows = write_rows(environment, folder / ROWS) if kind == "trl" and export.setup["data"] is None else None
    return Written(kind, folder, name if kind == "verifiers" else "reward", len(environment.histories), rows)


def _about(environment: Environment) -> str:
    source = environment.benchmark.source
    return (
        f"The memory writer of `{environment.program.name}` on `{environment.benchmark.name}` "
        f"({source.name}, sha256 {source.sha256[:12]}), part {environment.export.part}: "
        f"{len(environment.histories)} histories. `{FILE}` holds the settings; edit paths and addresses in it.\n"
        "Keys come from the environment (OPENAI_API_KEY, ...). docs/training_elsewhere.md explains rewards.\n"
    )


def _verifiers(environment: Environment, name: str) -> dict[str, str]:
    dashed = name.replace("_", "-")
    return {
        "pyproject.toml": _PYPROJECT.format(dashed=dashed, name=name, benchmark=environment.benchmark.name),
        f"{name}/__init__.py": _PACKAGE,
        "README.md": f"# {dashed}\n\n{_about(environment)}\n```bash\npip install -e .\n"
        f"vf-eval {dashed} -n 2 -r 4 --model MODEL --client.base-url http://HOST:8000/v1 \\\n"
        "  --client.api-key-var OPENAI_API_KEY --no-push\n```\n",
    }


def _trl(environment: Environment) -> dict[str, str]:
    return {"reward.py": _REWARD, "README.md": f"# Rows for GRPOTrainer\n\n{_about(environment)}\n{_TRL_README}"}


_PYPROJECT = """\
[project]
name = "{dashed}"
version = "0.1.0"
description = "Writing the memory of {benchmark}, an environment of Mempiler"
requires-python = ">=3.11"
dependencies = ["verifiers>=0.4,<0.5", "mempiler"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{name}"]
"""

_PACKAGE = '''\
"""The task set, the harness and the environment of export.json."""

from pathlib import Path

from mempiler.runs.exports.taskset import make

Taskset, Harness, Env = make(Path(__file__).with_name("export.json"))
__all__ = ["Env", "Harness", "Taskset"]
'''

_REWARD = '''\
"""The reward function of export.json. `python reward.py` writes rows.jsonl by the model that export.json names."""

from pathlib import Path

from mempiler.runs.exports.environment import Environment
from mempiler.runs.exports.rows import reward_function, write_rows

HERE = Path(__file__).parent
memory = reward_function(HERE / "export.json")

if __name__ == "__main__":
    print(write_rows(Environment.open(HERE / "export.json"), HERE / "rows.jsonl"), "rows")
'''

_TRL_README = """\
`rows.jsonl` is there, or written by `python reward.py`. Then:

```python
from datasets import load_dataset
from reward import memory
from trl import GRPOConfig, GRPOTrainer

rows = load_dataset("json", data_files="rows.jsonl", split="train")
settings = GRPOConfig(output_dir="out", num_generations=8, temperature=1.0, max_completion_length=1024)
GRPOTrainer("MODEL", reward_funcs=memory, args=settings, train_dataset=rows).train()
```

The memories in the rows are those of the model that wrote them: write them anew with the trained one from time to time.
"""
