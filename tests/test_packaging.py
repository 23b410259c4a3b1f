"""What is installed is what the repository holds: the files of the wheel, the packages, dependencies and names."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import mempiler
import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE = {"tests", "perf", "docs", ".ci"}
"""Folders whose Python files do not ship."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHIPPED = {".py", ".typed", ".csv", ".json", ".jsonl", ".dat", ".html", ".css", ".js"}
"""Endings of the files that ship."""
NAMED = {"agents": "openai-agents", "llama_index": "llama-index-core"}
"""Packages of extras that are not installed here, by the modules that they bring."""
PINS = Path("systems/pins")
"""Packages of other people's systems."""
ELSEWHERE = Path("systems/inside")
"""What runs in environments of these packages."""


@pytest.fixture(scope="session")
def sources() -> list[Path]:
    """The repository's files relative to its root: tracked, or new and not ignored."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: which files belong to the repository is not known")
    return [Path(name) for name in sorted(set(listing.split("\0"))) if name and (ROOT / name).is_file()]


@pytest.fixture(scope="session")
def wheel(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel that is built from nothing but the repository's files."""
    copy, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for source in sources:
        (copy / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, copy / source)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q", "-w", str(out)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(out.glob("*.whl"))) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_wheel_holds_all_files_of_the_package_the_license_and_no_other(sources: list[Path], wheel: set[str]) -> None:
    expected = {f"mempiler/{source.as_posix()}" for source in sources if _ships(source)}
    assert {name for name in wheel if ".dist-info/" not in name} == expected
    assert [name for name in wheel if name.endswith(".dist-info/licenses/LICENSE")]


def test_every_import_is_a_declared_dependency(sources: list[Path]) -> None:
    """What arrives only through another package can leave with its next release."""
    project, owners = PROJECT["project"], packages_distributions()
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "dev"}
    declared = {_normal(line) for lines in (project["dependencies"], *extras.values()) for line in lines}
    missing = {
        f"{source}: {module}"
        for source in sources
        if source.suffix == ".py" and _ships(source) and source.parent != ELSEWHERE
        for module in _imported(ROOT / source)
        if not declared & {_normal(owner) for owner in owners.get(module, [NAMED.get(module, module)])}
    }
    assert sorted(missing) == []


def test_constraints_pin_every_dependency() -> None:
    project = PROJECT["project"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {_normal(line) for line in lines if "==" in line}
    extras = project["optional-dependencies"]
    required = {_normal(line) for line in [*project["dependencies"], *extras["dev"], *extras["docs"]]}
    assert required - pinned == set()


def test_every_public_name_is_there_and_importing_the_package_brings_no_other() -> None:
    """Neither DSPy nor pydantic: `mempiler --help` and a plain import are instant."""
    found = {name: getattr(mempiler, name) for name in mempiler.__all__}
    assert [name for name, each in found.items() if not isinstance(each, str) and each.__name__ != name] == []
    code = "import sys; before = set(sys.modules); import mempiler; dir(mempiler); print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    assert {name for name in packages - sys.stdlib_module_names if not name.startswith("__editable__")} == {"mempiler"}


def _ships(source: Path) -> bool:
    """Whether a file belongs into the wheel: code and data, but what builds, tests, times or explains the package."""
    inside = source != Path("setup.py") and not OUTSIDE & set(source.parts[:1])
    return inside and (source.suffix in SHIPPED or source.name == "py.typed" or source.parent == PINS)


def _normal(requirement: str) -> str:
    """The name in a requirement as indexes compare it."""
    name = re.split(r"[\[<>=!~;@ ]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported(path: Path) -> Iterator[str]:
    """Names of the outside modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        yield from (top for name in names if (top := name.split(".")[0]) not in sys.stdlib_module_names)
