"""The folder of an export: a package for `verifiers`.

OUT/pyproject.toml, README.md, PACKAGE/__init__.py, PACKAGE/export.json
"""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import UserError
from ..home import make_folder
from .environment import FILE, Environment, Export


def write(export: Export, folder: Path) -> dict[str, str | int]:
    """Writes an export.

    Args:
        export: What it is made of, without digests.
        folder: Where to.

    Returns:
        The folder, the name of the package, and how many histories it has.

    Raises:
        UserError: The folder is not empty or cannot be written, or there is nothing to train on.
    """
    make_folder(folder)
    if any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; choose another --out")
    environment = Environment(export, folder)
    _ = environment.rewarded  # refuses settings of the reward that are none
    benchmark, histories = environment.benchmark, len(environment.histories)
    if not histories:
        raise UserError(f"the part {export.part} of {benchmark.name} has no history; choose another --part")
    name = re.sub(r"\W+", "_", f"mempiler_{environment.program.name}_{benchmark.name}").lower()
    told = {"name": name, "dashed": name.replace("_", "-"), "method": environment.program.name}
    told |= {"benchmark": benchmark.name, "part": export.part, "histories": histories, "source": benchmark.source.name}
    files = {
        "pyproject.toml": _PYPROJECT.format(**told),
        "README.md": _README.format(**told),
        f"{name}/__init__.py": _PACKAGE,
        f"{name}/{FILE}": export.model_copy(update=environment.digests).model_dump_json(indent=1) + "\n",
    }
    (folder / name).mkdir()
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return {"folder": str(folder), "name": name, "histories": histories}


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

_README = """\
# {dashed}

The memory writer of `{method}` on `{benchmark}` ({source}), part {part}: {histories} histories. `export.json` holds the
settings; edit paths and addresses in it. Keys come from the environment (OPENAI_API_KEY, ...).

```bash
pip install -e .
vf-eval {dashed} -n 2 -r 4 --model MODEL --client.base-url http://HOST:8000/v1 --client.api-key-var OPENAI_API_KEY \\
  --no-push
```
"""

_PACKAGE = '''\
"""The task set, the harness and the environment of export.json."""

from pathlib import Path

from mempiler.runs.exports.taskset import make

Taskset, Harness, Env = make(Path(__file__).with_name("export.json"))
__all__ = ["Env", "Harness", "Taskset"]
'''
