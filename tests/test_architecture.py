"""Rules of the product's source code: imports point one way, and nothing is unsafe.

A rule is a function that takes a module and returns what breaks the rule there. Each rule must find
nothing in the package, and must find the breach in a module that breaks it. A room is a folder of
the package with its own list of the folders that it may import.
"""

import ast
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import dspy
import mempiler
import pytest

from .conftest import package_files

ROOT = Path(mempiler.__file__).parent

BASE = {
    "records",
    "errors",
    "secret_values",
    "text",
    "validation",
    "optional_import",
    "async_bridge",
}
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
"""What each folder of the package may import besides itself."""

UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
UNSAFE_CALLS = {"eval", "exec"}


@dataclass
class Module:
    """A source file of the package."""

    parts: tuple[str, ...]
    """Its path below the root, without the suffix, e.g. ("serving", "http", "app")."""
    text: str = field(repr=False)

    @property
    def room(self) -> str:
        """The folder whose rules hold for it."""
        return _room(self.parts)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of its syntax tree."""
        return list(ast.walk(ast.parse(self.text)))

    @cached_property
    def imports(self) -> list[str]:
        """Every import, also in functions, as a dotted name.

        Names of the package begin with a dot, e.g. ".errors.UserError".
        """
        names: list[str] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names.extend(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                names.extend(f"{origin}{alias.name}" for alias in node.names)
        return names

    def _origin(self, node: ast.ImportFrom) -> str:
        """Return what stands before an imported name, with a dot at its end."""
        if node.level == 0:
            return f"{node.module}."
        parents = self.parts[: len(self.parts) - node.level]
        names = [*parents, node.module] if node.module else parents
        return "." + "".join(f"{name}." for name in names)


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
"""Folders that may import only a part of another folder: the beginnings of the allowed names."""
FROM_THE_PACKAGE = {"Store", "UserMemory"}
"""Names that `programs` may import from `mempiler` itself, in a function: for `program.memory`."""


def wrong_rooms(module: Module) -> list[str]:
    """Return imports of folders that the module's folder may not import."""
    breaches: list[str] = []
    for name in module.imports:
        if name.startswith(".") and not _may_import(module.room, name):
            breaches.append(f"{module.room} imports {name}")
    return breaches


def _may_import(room: str, name: str) -> bool:
    """Return whether modules of a folder may import a name of the package."""
    target = _room(name.removeprefix(".").split("."))
    if target == room or target.startswith("__") or room.startswith("__"):
        return True
    if room == "programs" and target in FROM_THE_PACKAGE:
        return True
    if target not in MAY_IMPORT.get(room, set()):
        return False
    return name.startswith(ONLY.get((room, target), "."))


def circles(package: Sequence[Module]) -> set[frozenset[str]]:
    """Return the groups of files that import one another, also in functions or for types alone.

    The package's own `__init__` is left out: it names every folder.
    """
    files = {_dotted(module): module for module in package if module.parts != ("__init__",)}

    imported_files: dict[str, set[str]] = {}
    for file, module in files.items():
        targets: set[str] = set()
        for name in module.imports:
            if name.startswith("."):
                targets.add(_file_of(name.removeprefix("."), files))
        imported_files[file] = (targets & files.keys()) - {file}

    reachable = {file: _reachable(imported_files, file) for file in files}
    groups: set[frozenset[str]] = set()
    for file in files:
        group = {other for other in reachable[file] if file in reachable[other]}
        if group:
            groups.add(frozenset(group))
    return groups


def _file_of(name: str, files: Container[str]) -> str:
    """Return the file of an imported name, which is the file itself or something in it."""
    if name in files:
        return name
    return name.rpartition(".")[0]


def _reachable(imported_files: Mapping[str, set[str]], file: str) -> set[str]:
    """Return the files that a file imports, and those that these import, and so on."""
    reachable: set[str] = set()
    unvisited = list(imported_files[file])
    while unvisited:
        other = unvisited.pop()
        if other not in reachable:
            reachable.add(other)
            unvisited.extend(imported_files[other])
    return reachable


def absolute_imports(module: Module) -> list[str]:
    """Return imports of the package by its name: the package may be installed under a folder."""
    return [name for name in module.imports if name.split(".")[0] == "mempiler"]


def unsafe_code(module: Module) -> list[str]:
    """Return what runs code that a file holds."""
    unsafe_imports = [name for name in module.imports if name.split(".")[0] in UNSAFE_MODULES]
    unsafe_calls = [name for name in _calls(module) if name in UNSAFE_CALLS]
    return unsafe_imports + unsafe_calls


def global_settings(module: Module) -> list[str]:
    """Return changes of DSPy's settings for the whole process, which `dspy.context` would end."""
    configure = ("dspy.configure", "dspy.settings.configure")
    calls = [name for name in _calls(module) if name in configure]
    imports = [name for name in module.imports if name == "dspy.configure"]
    return calls + imports


def private_ways(module: Module) -> list[str]:
    """Return uses of private modules of DSPy, and assignments of `__class__` in `engines`.

    All of these may change with any version of DSPy.
    """
    breaches: list[str] = []
    for name in module.imports:
        is_private = "._" in name or name.startswith(("dspy.clients.execution", "dspy.dsp."))
        if name.startswith("dspy.") and is_private:
            breaches.append(name)

    for node in module.nodes:
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        if module.room == "engines" and node.attr == "__class__":
            breaches.append(ast.unparse(node))
    return breaches


def not_alone(module: Module) -> list[str]:
    """Return imports of the package in `systems/inside`, which runs where it is not installed."""
    if module.parts[:2] != ("systems", "inside"):
        return []
    return [name for name in module.imports if name.startswith((".", "mempiler"))]


Rule = Callable[[Module], list[str]]

RULES: list[Rule] = [
    wrong_rooms,
    absolute_imports,
    unsafe_code,
    global_settings,
    private_ways,
    not_alone,
]
BREACHES: list[tuple[Rule, str, str]] = [
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
"""Rules, each with the path and text of a module that breaks it."""


@pytest.fixture(scope="module")
def package() -> list[Module]:
    """Every module of the package."""
    modules: list[Module] = []
    for file in package_files():
        text = (ROOT / file).read_text(encoding="utf-8")
        modules.append(Module(file.with_suffix("").parts, text))
    return modules


def test_all_folders_of_the_package_are_checked(package: list[Module]) -> None:
    rooms = {module.room for module in package}

    # If the walk missed the package, every rule would hold.
    assert {"errors", "records", "memory", "programs", "data", "runs"} <= rooms


@pytest.mark.parametrize("rule", RULES)
def test_package_follows_the_rule(rule: Rule, package: list[Module]) -> None:
    breaches: list[str] = []
    for module in package:
        path = "/".join(module.parts)
        breaches.extend(f"{path}.py: {breach}" for breach in rule(module))

    assert breaches == []


def test_no_files_of_the_package_import_one_another(package: list[Module]) -> None:
    """A circle is a group of files, each of which imports the others, directly or through one."""
    assert circles(package) == set()


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_breach_is_found(rule: Rule, path: str, text: str) -> None:
    """Each case is the source of a module that breaks one rule, and the path where it would stand.

    The same import may be allowed elsewhere: it is the path that makes it a breach.
    """
    assert len(rule(_module(path, text))) == 1


def test_circle_of_imports_in_functions_and_for_types_is_found() -> None:
    program = _module("programs/program", "def f():\n    from ..serving.memories import Memories")
    memories = _module(
        "serving/memories", "if TYPE_CHECKING:\n    from ..programs.program import MemoryProgram"
    )

    assert circles([program, memories]) == {frozenset({"programs.program", "serving.memories"})}


ATTRIBUTES_OF_MODULES = {name for name in vars(dspy.Predict("a -> b")) if name.startswith("_")}
"""Private attributes of DSPy's modules."""


def private_names_of_dspy(module: Module) -> set[str]:
    """Return the private methods of DSPy that a module overrides, and private attributes it uses.

    They are named as in CONTRIBUTING.md, e.g. "MIPROv2._propose_instructions".
    """
    names: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            names |= _overridden_private_methods(node)
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES_OF_MODULES:
            names.add(f"Module.{node.attr}")
    return names


def _overridden_private_methods(definition: ast.ClassDef) -> set[str]:
    """Return the private methods of DSPy's classes that a class definition overrides."""
    private_methods: list[str] = []
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and re.match("_(?!_)", statement.name):
            private_methods.append(statement.name)

    overridden: set[str] = set()
    for base in definition.bases:
        base_class = getattr(dspy, ast.unparse(base).removeprefix("dspy."), None)
        if base_class is not None:
            for method in private_methods:
                if hasattr(base_class, method):
                    overridden.add(f"{base_class.__name__}.{method}")
    return overridden


def test_contributing_lists_exactly_the_private_names_of_dspy_that_are_used(
    package: list[Module],
) -> None:
    """A new version of DSPy may change its private names, so developers look through the list."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Private names of DSPy\n")[2].partition("\n## ")[0]
    listed_names = set(re.findall(r"^\| `dspy\.(\w+\.\w+)` \|", section, re.MULTILINE))

    used_names: set[str] = set()
    for module in package:
        used_names |= private_names_of_dspy(module)

    assert listed_names == used_names


def test_overridden_private_method_of_dspy_is_found() -> None:
    """`dspy.MIPROv2` has a method `_propose_instructions`, and none of the name `_ours`."""
    text = """\
class Mine(dspy.MIPROv2):
    def _propose_instructions(self): ...
    def _ours(self): ...
"""
    names = private_names_of_dspy(_module("optimizers/mine", text))

    assert names == {"MIPROv2._propose_instructions"}


def test_private_attribute_of_a_dspy_module_is_found() -> None:
    names = private_names_of_dspy(_module("programs/mine", "program._compiled = False"))

    assert names == {"Module._compiled"}


def _room(parts: Sequence[str]) -> str:
    """Return the folder whose rules hold for a path: some folders within folders have their own."""
    inner_folder = "/".join(parts[:2])
    if inner_folder in MAY_IMPORT:
        return inner_folder
    return parts[0]


def _module(path: str, text: str) -> Module:
    return Module(tuple(path.split("/")), text)


def _dotted(module: Module) -> str:
    """Return the name by which others import a module."""
    return ".".join(module.parts).removesuffix(".__init__")


def _calls(module: Module) -> list[str]:
    """Return what a module calls, as it is written."""
    return [ast.unparse(node.func) for node in module.nodes if isinstance(node, ast.Call)]
