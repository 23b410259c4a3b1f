"""Runs one block of docs/agents.md behind its set-up: `agent.py HEADING CALL...`.

It runs in the environment of the block's framework. Each CALL is a Python expression that is
evaluated behind the block; its value is printed as JSON behind `= `.
"""

import asyncio
import inspect
import json
import re
import sys
from pathlib import Path


def blocks(heading: str) -> list[str]:
    """The set-up and the blocks of Python of a section."""
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    code = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [code.findall(page)[0], *code.findall(sections[heading])]


def main() -> None:
    heading, *calls = sys.argv[1:]
    known: dict[str, object] = {"__name__": "agents"}
    for block in blocks(heading):
        exec(compile(block, "docs/agents.md", "exec"), known)
    # One loop for all calls, as an application has: a page's client keeps its connections in the
    # loop it was used in.
    with asyncio.Runner() as runner:
        for call in calls:
            found = eval(call, known)
            print(
                "=",
                json.dumps(runner.run(found) if inspect.iscoroutine(found) else found),
                flush=True,
            )


if __name__ == "__main__":
    main()
