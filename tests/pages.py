"""Run the files and commands of a page of the documentation, in a folder with nothing else."""

import io
import json
import re
import runpy
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DOCS = Path(__file__).parents[1] / "docs"


class CodeBlock(NamedTuple):
    """A fenced block of code."""

    language: str
    text: str


class Page:
    """A page: its code blocks, its files by name, and its commands.

    A file is a code block below its name in bold. A command is a line that begins with "$ ".
    """

    def __init__(self, name: str) -> None:
        self.text = (DOCS / name).read_text(encoding="utf-8")

        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        self.blocks = [CodeBlock(language, text) for language, text in blocks]

        named_block = r"^\*\*([\w.]+)\*\*\n\n```\w+\n(.*?)^```$"
        files = re.findall(named_block, self.text, re.DOTALL | re.MULTILINE)
        self.files: dict[str, str] = dict(files)

        self.commands: list[str] = re.findall(r"^\$ (.*)$", self.text, re.MULTILINE)

    def blocks_of(self, language: str) -> list[str]:
        """Return the code blocks of a language."""
        return [block.text for block in self.blocks if block.language == language]

    def write(self, folder: Path) -> Path:
        """Write the page's files into a folder; return the folder."""
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    def run(self, commands: list[str], folder: Path, *paths: Path) -> dict[str, Any]:
        """Run commands in a folder, each `mempiler ...` or `python SCRIPT`.

        Args:
            commands: The commands.
            folder: The current folder of the commands; their results go into it too.
            *paths: Folders from which modules are imported.

        Returns:
            By command: the object that `mempiler` prints with `--json`, or the value of the
            variable `found` of a script.
        """
        results: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            for path in paths:
                patch.syspath_prepend(path)
            patch.setenv("MEMPILER_HOME", str(folder / "runs"))
            patch.chdir(folder)
            for command in commands:
                results[command] = _run(command)

        # The next page may have modules of the same names.
        for name in self.files:
            sys.modules.pop(Path(name).stem, None)
        return results

    def untested(self, *other_blocks: str) -> list[str]:
        """Return the code blocks that are neither a file, nor commands, nor one of these."""
        tested_blocks = {*self.files.values(), *other_blocks}
        command_lines = {f"$ {command}" for command in self.commands}
        untested: list[str] = []
        for block in self.blocks:
            has_only_commands = command_lines.issuperset(block.text.splitlines())
            if block.text not in tested_blocks and not has_only_commands:
                untested.append(block.text)
        return untested


def _run(command: str) -> Any:
    """Run a command; return what `Page.run` returns for it."""
    from mempiler.cli import main

    program, *words = shlex.split(command)
    with redirect_stdout(io.StringIO()) as stdout:
        if program == "python":
            return runpy.run_path(words[0]).get("found")
        main([*words, "--json"])
    return json.loads(stdout.getvalue())


OWN_SYSTEMS = Page("own_systems.md")
OF_A_GRAPH = [command for command in OWN_SYSTEMS.commands if "agent:agent" in command]
"""The commands of that page that import LangGraph, which `make integrations` runs."""
