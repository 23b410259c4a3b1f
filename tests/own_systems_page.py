"""What `docs/own_systems.md` is made of: its files, its commands, and which of these need LangGraph."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "own_systems.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^\*\*([\w.]+)\*\*\n\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS: list[str] = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
(SNIPPET,) = [text for language, text in BLOCKS if language == "python" and text not in FILES.values()]
OF_A_GRAPH = [line for line in COMMANDS if "agent:agent" in line]
"""Those that import LangGraph, which `make integrations` runs."""


def write_files(folder: Path) -> None:
    """Writes the page's files into a folder."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
