"""What is installed and started is what the repository holds: wheel, dependencies, names, image and composition."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
import yaml
from mempiler.cli import app

ROOT = Path(__file__).parents[1]
OUTSIDE = {"tests", "perf", "docs", ".ci"}
"""Folders whose Python files do not ship."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHIPPED = {".py", ".typed", ".csv", ".json", ".jsonl", ".dat", ".html", ".css", ".js", ".sql"}
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


def test_the_message_about_a_missing_package_names_what_brings_it(sources: list[Path]) -> None:
    """An extra for users that holds the package; none for what comes with Mempiler itself."""
    project = PROJECT["project"]
    brings = {name: set(map(_normal, lines)) for name, lines in project["optional-dependencies"].items()}
    brings |= {None: set(map(_normal, project["dependencies"])), "dev": set(), "docs": set()}
    named = {
        (str(source), *arguments)
        for source in sources
        if source.suffix == ".py" and _ships(source)
        for arguments in _missing_packages(ROOT / source)
    }
    assert len(named) > 10
    wrong = [(source, package, extra) for source, package, extra in named if _normal(package) not in brings[extra]]
    assert wrong == []


def _missing_packages(path: Path) -> Iterator[tuple[str, str | None]]:
    """Package and extra of every message about a missing package that a file names in plain text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if node.func.id in ("require_package", "MissingDependencyError") and len(texts) == len(node.args):
            yield texts[0], texts[1] if len(texts) > 1 else None


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
    assert found.pop("optimizers").__name__ == "mempiler.optimizers"
    assert [name for name, each in found.items() if not isinstance(each, str) and each.__name__ != name] == []
    code = "import sys; before = set(sys.modules); import mempiler; dir(mempiler); print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    assert {name for name in packages - sys.stdlib_module_names if not name.startswith("__editable__")} == {"mempiler"}


def test_type_checkers_see_the_public_names_in_the_modules_that_they_are_imported_from() -> None:
    (block,) = [node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    seen: dict[str | None, str] = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            seen[alias.asname] = f".{statement.module or ''}"
    assert seen.pop("optimizers") == "."
    assert seen == mempiler._MODULES


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


COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


SERVE: Any = app.get_command(click.Context(app), "serve")


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of a kind, lines joined."""
    joined = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    return [line.partition(" ")[2] for line in joined.splitlines() if line.startswith(f"{name} ")]


def test_every_variable_is_one_that_serve_reads():
    pairs = [pair for line in instructions("ENV") for pair in shlex.split(line)]
    image = {pair.partition("=")[0] for pair in pairs}
    asked = {name for name in image | set(SERVICES["mempiler"]["environment"]) if name.startswith("MEMPILER_")}
    assert asked - {"MEMPILER_HOME"} <= {parameter.envvar for parameter in SERVE.params}
    assert {"MEMPILER_PROGRAM", "MEMPILER_STORE", "MEMPILER_TOKEN_FILE"} <= asked


def test_no_secret_is_written_down_and_ports_are_of_this_machine():
    held = json.dumps(SERVICES) + DOCKERFILE
    assert not re.search(r"(?i)(password|key|token)\w*[\"']?\s*[:=]\s*[\"']?(?!\$\{|/run/secrets|null)[\w-]{6,}", held)
    for service in SERVICES.values():
        assert all("healthcheck" in SERVICES[other] for other in service.get("depends_on", {}))
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        for name, value in service["environment"].items():
            if "PASSWORD" in name:
                assert str(value).startswith("${POSTGRES_PASSWORD:?")


def test_only_the_service_gets_the_keys_of_the_model():
    assert SERVICES["mempiler"]["env_file"] == [{"path": ".env", "required": False}]
    assert [name for name, service in SERVICES.items() if "env_file" in service] == ["mempiler"]


def test_the_image_installs_extras_that_the_project_has(tmp_path):
    """The command of the image that writes what is to be installed, run here."""
    (extras,) = (shlex.split(line)[0].removeprefix("EXTRAS=") for line in instructions("ARG"))
    (script,) = re.findall(r'python -c "(.*?)" > needed.txt', re.sub(r"\\\n", "", DOCKERFILE), re.DOTALL)
    environment = {"EXTRAS": extras, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    needed = {_normal(line) for line in done.stdout.splitlines()}
    assert {"dspy", "psycopg", "mcp"} <= needed
    assert "torch" not in needed


def test_the_image_runs_as_a_user_of_its_own_and_tells_its_health():
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER mempiler$", last, re.MULTILINE)
    assert "/health" in instructions("HEALTHCHECK")[0]
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["mempiler"]
    assert json.loads(instructions("CMD")[-1]) == ["serve"]


def test_the_builder_sees_every_room_and_nothing_else():
    """`.dockerignore` lists what is let in; a room that it forgets is missing from the image."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert rooms <= let_in
    assert {"README.md", "LICENSE", "pyproject.toml", "constraints.txt", "py.typed", "*.py"} <= let_in
    assert not {"tests", ".git", ".env", "tokens.txt"} & let_in
    assert "runs/local" in lines


def test_the_proxy_has_the_limits_of_the_service():
    default = {parameter.name: parameter.default for parameter in SERVE.params}
    content = COMPOSE["configs"]["proxy"]["content"]
    found = dict(re.findall(r"(read_header|read_body|idle|max_size|reverse_proxy) (\S+)", content))
    assert found == {
        "read_header": "10s",
        "read_body": f"{default['timeout']:g}s",
        "idle": f"{default['keep_alive']:g}s",
        "max_size": f"{default['max_body'] // 1_000_000}MB",
        "reverse_proxy": "mempiler:8000",
    }
    assert SERVICES["proxy"]["profiles"] == ["proxy"]
    # Compose takes one $ for itself.
    assert "{$$SITE}" in content
    assert "SITE" in SERVICES["proxy"]["environment"]
