"""Pages of the documentation whose files and commands work as they stand, in a folder with nothing else."""

import io
import json
import re
import runpy
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest


class Page:
    """Its code blocks with their languages, its files by name, and its commands."""

    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8")
        named = re.findall(r"^\*\*([\w.]+)\*\*\n\n```\w+\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        self.files: dict[str, str] = dict(named)
        self.blocks: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        self.commands: list[str] = re.findall(r"^\$ (.*)$", self.text, re.MULTILINE)

    def write(self, folder: Path) -> Path:
        """Writes the page's files into a folder."""
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    def run(self, lines: list[str], folder: Path, *paths: Path) -> dict[str, Any]:
        """What commands print with `--json` in the folder, with packages of `paths`; what a script calls `found`."""
        from mempiler.cli import main

        found: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            for path in paths:
                patch.syspath_prepend(path)
            patch.setenv("MEMPILER_HOME", str(folder / "runs"))
            patch.chdir(folder)
            for line in lines:
                program, *words = shlex.split(line)
                with redirect_stdout(io.StringIO()) as printed:
                    known = runpy.run_path(words[0]) if program == "python" else main([*words, "--json"])
                found[line] = known.get("found") if known else json.loads(printed.getvalue())
        for name in self.files:
            sys.modules.pop(Path(name).stem, None)
        return found

    def untested(self, *others: str) -> list[str]:
        """Code blocks that are neither a file, nor commands, nor one of these."""
        known = {*self.files.values(), *others}
        lines = {f"$ {line}" for line in self.commands}
        return [text for _, text in self.blocks if text not in known and not lines.issuperset(text.splitlines())]


OWN_SYSTEMS = Page("own_systems.md")
OF_A_GRAPH = [line for line in OWN_SYSTEMS.commands if "agent:agent" in line]
"""The commands of it that import LangGraph, which `make integrations` runs."""
