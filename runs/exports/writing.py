"""The folder of an export: a package for `verifiers`.

OUT/pyproject.toml, README.md, PACKAGE/__init__.py, PACKAGE/export.json
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError
from ..home import make_folder
from .environment import FILE, Environment, Export, exported


@dataclass(frozen=True)
class Written:
    """An exported folder."""

    folder: Path
    name: str
    """Of the package."""
    histories: int

    def summary(self) -> dict[str, object]:
        """As JSON."""
        return {**vars(self), "folder": str(self.folder)}


def write(export: Export, folder: Path) -> Written:
    """Writes an export.

    Args:
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
    files = {**_package(environment, name), f"{name}/{FILE}": export.model_dump_json(indent=1) + "\n"}
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return Written(folder, name, len(environment.histories))


def _about(environment: Environment) -> str:
    source = environment.benchmark.source
    return (
        f"The memory writer of `{environment.program.name}` on `{environment.benchmark.name}` "
        f"({source.name}, sha256 {source.sha256[:12]}), part {environment.export.part}: "
        f"{len(environment.histories)} histories. `{FILE}` holds the settings; edit paths and addresses in it.\n"
        "Keys come from the environment (OPENAI_API_KEY, ...). docs/training_elsewhere.md explains rewards.\n"
    )


def _package(environment: Environment, name: str) -> dict[str, str]:
    dashed = name.replace("_", "-")
    return {
        "pyproject.toml": _PYPROJECT.format(dashed=dashed, name=name, benchmark=environment.benchmark.name),
        f"{name}/__init__.py": _PACKAGE,
        "README.md": f"# {dashed}\n\n{_about(environment)}\n```bash\npip install -e .\n"
        f"vf-eval {dashed} -n 2 -r 4 --model MODEL --client.base-url http://HOST:8000/v1 \\\n"
        "  --client.api-key-var OPENAI_API_KEY --no-push\n```\n",
    }


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
