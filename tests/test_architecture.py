"""The shape of the package, read from its sources: imports point one way, and nothing is unsafe.

Each rule is a function from one module to the lines that break it. It is run over the package, where it must find
nothing, and over a line that breaks it, which it must find.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import dspy
import mempiler
import pytest

from .conftest import package_files

ROOT = Path(mempiler.__file__).parent

BASE = {"records", "errors", "secret_values", "text", "validation", "optional_import", "async_bridge"}
PROGRAMS = BASE | {"memory", "signatures", "reading", "engines"}
OPTIMIZERS = PROGRAMS | {"programs", "data", "engines"}
MAY_IMPORT: dict[str, set[str]] = {
    "secret_values": set(),
    "text": set(),
    "async_bridge": set(),
    "errors": {"text"},
    "optional_import": {"errors"},
    "validation": {"errors", "secret_values"},
    "records": {"errors", "text", "validation"},
    "reading": BASE,
    "signatures": BASE | {"reading"},
    "memory": BASE,
    "data": BASE | {"signatures", "reading"},
    "engines": BASE | {"reading"},
    "programs": PROGRAMS,
    "optimizers": OPTIMIZERS,
    "systems": BASE | {"memory", "reading", "engines"},
    "runs": OPTIMIZERS | {"optimizers", "systems"},
    "testing": OPTIMIZERS,
    "serving": OPTIMIZERS | {"optimizers", "runs"},
    "serving/frameworks": {"errors", "optional_import", "reading", "serving"},
    "serving/client": BASE | {"memory", "serving"},
    "cli": OPTIMIZERS | {"optimizers", "runs", "serving", "systems"},
}
"""What each room may import besides itself."""

UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
UNSAFE_CALLS = {"eval", "exec"}


@dataclass
class Module:
    """One source file: its path below the root, as parts without the suffix, and its text."""

    parts: tuple[str, ...]
    text: str = field(repr=False)

    @property
    def room(self) -> str:
        return _room(self.parts)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[str]:
        """Every import, also the lazy ones in functions, as a dotted name; those of the package start with a dot."""
        found: list[str] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = [".", *self.parts[: len(self.parts) - node.level]] if node.level else []
                path = [*base, *(node.module or "").split(".")]
                found += [".".join(filter(None, [*path, alias.name])).replace("..", ".") for alias in node.names]
        return found


ONLY: dict[tuple[str, str], tuple[str, ...]] = {
    ("serving/frameworks", "serving"): (".serving.prompt_text.",),
    ("serving/client", "serving"): (".serving.http.schemas.",),
    ("programs", "engines"): (
        ".engines.async_models.ask_model",
        ".engines.call_context.",
        ".engines.embedders.embedder",
        ".engines.usage.Usage",
    ),
}
"""Of some rooms a part alone: names begin with one of these."""
FROM_THE_PACKAGE = {"Store", "UserMemory"}
"""What programs may take from `mempiler` itself, lazily: what `program.memory(...)` makes; they know no store."""


def wrong_rooms(module: Module) -> list[str]:
    """Imports that point up or sideways."""
    found = []
    for name in module.imports:
        target = _room(name.lstrip(".").split("."))
        if not name.startswith(".") or target == module.room or target.startswith("__") or module.room.startswith("__"):
            continue
        if module.room == "programs" and target in FROM_THE_PACKAGE:
            continue
        allowed = target in MAY_IMPORT.get(module.room, set())
        if not allowed or not name.startswith(ONLY.get((module.room, target), ".")):
            found.append(f"{module.room} imports {name}")
    return found


def circles(package: Sequence[Module]) -> set[frozenset[str]]:
    """Files that import one another, lazily or for types alone too; the package's own `__init__` names every room."""
    files = {_dotted(module): module for module in package if module.parts != ("__init__",)}
    arrows: dict[str, set[str]] = {}
    for file, module in files.items():
        names = [name.lstrip(".") for name in module.imports if name.startswith(".")]
        arrows[file] = {name if name in files else name.rpartition(".")[0] for name in names} & files.keys() - {file}
    reached = {file: _reached(arrows, file) for file in files}
    rings = ({other for other in reached[file] if file in reached[other]} for file in files)
    return {frozenset(ring) for ring in rings if ring}


def absolute_imports(module: Module) -> list[str]:
    """Imports of the package by its name: folders and import paths must not disagree."""
    return [name for name in module.imports if name.split(".")[0] == "mempiler"]


def unsafe_code(module: Module) -> list[str]:
    """Anything that runs what a file holds."""
    names = [name for name in module.imports if name.split(".")[0] in UNSAFE_MODULES]
    return names + [name for name in _calls(module) if name in UNSAFE_CALLS]


def global_settings(module: Module) -> list[str]:
    """Changes of DSPy's settings for the whole process; `dspy.context` ends with its block."""
    calls = [name for name in _calls(module) if name in ("dspy.configure", "dspy.settings.configure")]
    return calls + [name for name in module.imports if name == "dspy.configure"]


def private_ways(module: Module) -> list[str]:
    """Private names of DSPy, what its calls pass through, and clients given another class: all may change."""
    imported = [name for name in module.imports if name.startswith("dspy.")]
    names = [name for name in imported if "._" in name or name.startswith(("dspy.clients.execution", "dspy.dsp."))]
    stored = (node for node in module.nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return names + [ast.unparse(node) for node in stored if module.room == "engines" and node.attr == "__class__"]


def not_alone(module: Module) -> list[str]:
    """Imports of the package by what runs where the package is not."""
    inside = module.parts[:2] == ("systems", "inside")
    return [name for name in module.imports if inside and name.startswith((".", "mempiler"))]


RULES = (wrong_rooms, absolute_imports, unsafe_code, global_settings, private_ways, not_alone)
BREACHES: list[tuple[Callable[[Module], list[str]], str, str]] = [
    (absolute_imports, "runs/compare", "from mempiler.errors import UserError"),
    (unsafe_code, "runs/artifact", "import pickle"),
    (global_settings, "runs/scoring", "dspy.configure(lm=None)"),
    (private_ways, "engines/metered_lm", "from dspy.clients.execution import execute"),
    (private_ways, "programs/replay", "from dspy.dsp.utils.settings import main_thread_config"),
    (not_alone, "systems/inside/mem0", "from ...records import Item"),
    (wrong_rooms, "memory/facts", "def f():\n    from ..engines.lm import lm"),
    (wrong_rooms, "engines/offline/engine", "from ...memory.facts import Facts"),
    (wrong_rooms, "programs/program", "from ..serving.memories import Memories"),
    (wrong_rooms, "programs/program", "from .. import Client"),
    (wrong_rooms, "serving/http/app", "from ..frameworks.langchain import MemoryRetriever"),
    (wrong_rooms, "serving/frameworks/langchain", "from ..memories.user_memory import UserMemory"),
    (wrong_rooms, "serving/client/remote_memory", "from ..memories.view import View"),
    (wrong_rooms, "unheard_of/room", "from ..errors import UserError"),
]
"""Each rule, with the path and text of modules that break it."""


@pytest.fixture(scope="module")
def package() -> list[Module]:
    """Every module of the package."""
    return [Module(file.with_suffix("").parts, (ROOT / file).read_text(encoding="utf-8")) for file in package_files()]


def test_package_follows_every_rule(package: list[Module]) -> None:
    # A walk that misses the package would let every rule pass.
    assert {"errors", "records", "memory", "programs", "data", "runs"} <= {module.room for module in package}
    found = [(module, rule.__name__, breach) for module in package for rule in RULES for breach in rule(module)]
    assert [f"{'/'.join(module.parts)}.py: {name}: {breach}" for module, name, breach in found] == []
    assert circles(package) == set()


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_breach_is_seen(rule: Callable[[Module], list[str]], path: str, text: str) -> None:
    assert len(rule(_module(path, text))) == 1


def test_a_circle_of_lazy_and_type_only_imports_is_seen() -> None:
    one = _module("programs/program", "def f():\n    from ..serving.memories import Memories")
    two = _module("serving/memories", "if TYPE_CHECKING:\n    from ..programs.program import MemoryProgram")
    assert circles([one, two]) == {frozenset({"programs.program", "serving.memories"})}


def private_names_of_dspy(module: Module) -> set[str]:
    """Private methods of DSPy's classes that a module overrides, and private attributes of its modules that it uses."""
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            private = [name for name in methods if name.startswith("_") and not name.startswith("__")]
            for base in node.bases:
                kind = getattr(dspy, ast.unparse(base).removeprefix("dspy."), None)
                found |= {f"{kind.__name__}.{name}" for name in private if kind and hasattr(kind, name)}
        elif isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES_OF_MODULES:
            found.add(f"Module.{node.attr}")
    return found


_ATTRIBUTES_OF_MODULES = {name for name in vars(dspy.Predict("a -> b")) if name.startswith("_")}


def test_private_names_of_dspy_are_those_that_contributing_lists(package: list[Module]) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Private names of DSPy\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `dspy\.(\w+\.\w+)` \|", section, re.MULTILINE))
    assert listed == {name for module in package for name in private_names_of_dspy(module)}


def test_a_private_name_of_dspy_is_seen() -> None:
    overriding = "class Mine(dspy.MIPROv2):\n    def _propose_instructions(self): ...\n    def _ours(self): ..."
    assert private_names_of_dspy(_module("optimizers/mine", overriding)) == {"MIPROv2._propose_instructions"}
    assert private_names_of_dspy(_module("programs/mine", "program._compiled = False")) == {"Module._compiled"}


def _room(parts: Sequence[str]) -> str:
    """The room of a path below the root: a folder inside a room may be one of its own."""
    return inner if (inner := "/".join(parts[:2])) in MAY_IMPORT else parts[0]


def _module(path: str, text: str) -> Module:
    return Module(tuple(path.split("/")), text)


def _dotted(module: Module) -> str:
    return ".".join(module.parts).removesuffix(".__init__")


def _reached(arrows: Mapping[str, set[str]], file: str) -> set[str]:
    """The files that one imports, and those that these import."""
    found, left = set[str](), [*arrows[file]]
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += arrows[one]
    return found


def _calls(module: Module) -> list[str]:
    return [ast.unparse(node.func) for node in module.nodes if isinstance(node, ast.Call)]
