"""`docs/coverage.md` keeps its word: its symbols exist, and its table of fields and defaults is the code's.

`remarks` reads a page and says what is wrong with it. It must find nothing in the real page, and in doctored ones
it must find what was doctored.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mempiler.signatures
import pytest
from mempiler.programs.catalog import method_class
from mempiler.programs.names import METHODS
from pydantic import BaseModel

PAGE = (Path(__file__).parents[1] / "docs" / "coverage.md").read_text(encoding="utf-8")
TABLE = "## Fields and constructor defaults"
_SYMBOL = re.compile(r"`(mempiler(?:\.\w+)+)`")
_ROW = re.compile(r"^\| `(mempiler(?:\.\w+)+)` \| (.*) \|$", re.MULTILINE)


def remarks(page: str) -> list[str]:
    """What a coverage page names wrongly, leaves out of its table, or has there without need."""
    named = dict.fromkeys(_SYMBOL.findall(page))
    found = [f"{symbol} does not exist" for symbol in named if not _exists(symbol)]
    listed = dict(_ROW.findall(_section(page)))
    code = {**_fields(), **_defaults()}
    found += [f"{name}: not in the table: {text}" for name, text in code.items() if name not in listed]
    found += [f"{name}: neither a prompt's record nor a method" for name in listed if name not in code]
    wrong = [name for name in code if name in listed and listed[name] != code[name]]
    return found + [f"{name}: the table says {listed[name]}, the code {code[name]}" for name in wrong]


def _section(page: str) -> str:
    _, _, rest = page.partition(f"{TABLE}\n")
    return rest.partition("\n## ")[0]


def _exists(symbol: str) -> bool:
    """Whether a dotted name is a module, or an attribute or field that is reached through one."""
    parts = symbol.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            fields = getattr(found, "model_fields", {})
            if part not in fields and not hasattr(found, part):
                return False
            found = fields[part] if part in fields else getattr(found, part)
        return True
    return False


def _fields() -> dict[str, str]:
    """The fields, in order, of every signature of the suite and of every record that one uses."""
    return {f"{kind.__module__}.{kind.__qualname__}": ", ".join(kind.model_fields) for kind in _records()}


def _records() -> Iterator[type[BaseModel]]:
    """Signatures and records that a module of `mempiler.signatures` defines; a signature is a pydantic model too."""
    for found in pkgutil.walk_packages(mempiler.signatures.__path__, "mempiler.signatures."):
        module = importlib.import_module(found.name)
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]
        yield from (kind for kind in kinds if issubclass(kind, BaseModel) and kind.__module__ == module.__name__)


def _defaults() -> dict[str, str]:
    """The constructor arguments of every method, with defaults, without the embedder."""
    kinds = [method_class(name) for name in METHODS]
    return {f"{kind.__module__}.{kind.__qualname__}": _arguments(kind) for kind in kinds}


def _arguments(kind: type) -> str:
    # Of `__init__`: DSPy's metaclass gives the class itself a signature that says nothing.
    parameters = inspect.signature(kind.__init__).parameters.values()
    parameters = [p for p in parameters if p.name not in ("self", "embedder")]
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters) or "none"


def test_the_page_is_right_and_complete() -> None:
    assert remarks(PAGE) == []


@pytest.mark.parametrize(
    ("old", "new", "remark"),
    [
        (
            "`mempiler.data.locomo.scorer.LocomoF1.counts`",
            "`mempiler.data.locomo.scorer.LocomoF1.count`",
            "LocomoF1.count does not exist",
        ),
        ("`mempiler.records.Turn.content`", "`mempiler.record.Turn`", "mempiler.record.Turn does not exist"),
        ("| context, question, answer |", "| context, answer |", "the table says context, answer, the code context, q"),
        ("| context, question, answer |", "| question, context, answer |", "AnswerFromContext: the table says"),
        ("| related=5, related_total=25", "| related=8, related_total=25", "MemoryR2: the table says related=8"),
        (
            "| `mempiler.programs.baselines.turn_rag.TurnRAG` | k=10, hybrid=True |\n",
            "",
            "TurnRAG: not in the table: k=10, hybrid=True",
        ),
        (
            "`mempiler.programs.baselines.no_memory.NoMemory` | none",
            "`mempiler.records.Turn` | none",
            "neither",
        ),
        (TABLE, "## Something else", "not in the table"),
    ],
)
def test_a_doctored_page_is_seen(old: str, new: str, remark: str) -> None:
    assert old in PAGE
    assert any(remark in found for found in remarks(PAGE.replace(old, new)))
