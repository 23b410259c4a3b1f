"""What is installed and started: wheel, dependencies, public names, image and compose file.

The repository is the package: its root is the folder `mempiler` of the wheel. The image, which
`Dockerfile` builds, runs `mempiler serve`. The compose file starts it beside a database, and a
proxy if that is wanted.
"""

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
from typing import Any, NamedTuple

import click
import mempiler
import pytest
import yaml
from mempiler.cli import app

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

FOLDERS_LEFT_OUT = {"tests", "perf", "docs", ".ci"}
"""Folders that are not in the wheel."""
SHIPPED_SUFFIXES = {
    ".py",
    ".typed",
    ".csv",
    ".json",
    ".jsonl",
    ".dat",
    ".html",
    ".css",
    ".js",
    ".sql",
}
PINS = Path("systems/pins")
"""Requirements of other people's systems, which are in the wheel as well."""
INSIDE_OTHER_SYSTEMS = Path("systems/inside")
"""Code that runs in the environments of these systems, where other packages are installed."""
PACKAGES_NOT_INSTALLED_HERE = {"agents": "openai-agents", "llama_index": "llama-index-core"}
"""Packages of some extras, by the modules that they bring."""


def is_shipped(source: Path) -> bool:
    """Return whether a file of the repository belongs into the wheel."""
    if source == Path("setup.py") or source.parts[0] in FOLDERS_LEFT_OUT:
        return False
    return source.suffix in SHIPPED_SUFFIXES or source.name == "py.typed" or source.parent == PINS


def package_name(requirement: str) -> str:
    """Return the name in a requirement, in the form in which package indexes compare names."""
    name = re.split(r"[\[<>=!~;@ ]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def package_names(requirements: list[str]) -> set[str]:
    return {package_name(requirement) for requirement in requirements}


@pytest.fixture(scope="session")
def sources() -> list[Path]:
    """The repository's files relative to its root: tracked, or new and not ignored."""
    command = [
        "git",
        *("-c", "safe.directory=*"),
        *("ls-files", "-z", "--cached", "--others", "--exclude-standard"),
    ]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: which files belong to the repository is not known")

    names = sorted(set(listing.stdout.split("\0")))
    return [Path(name) for name in names if name and (ROOT / name).is_file()]


@pytest.fixture(scope="session")
def shipped_modules(sources: list[Path]) -> list[Path]:
    """The Python files of the wheel."""
    return [source for source in sources if source.suffix == ".py" and is_shipped(source)]


@pytest.fixture(scope="session")
def wheel(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel that is built from nothing but the repository's files."""
    checkout = tmp_path_factory.mktemp("checkout")
    for source in sources:
        target = checkout / source
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, target)

    wheel_folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        *("-m", "pip", "wheel"),
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
        "--quiet",
        *("--wheel-dir", str(wheel_folder)),
        str(checkout),
    ]
    build = subprocess.run(command, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stdout + build.stderr

    wheels = list(wheel_folder.glob("*.whl"))
    assert len(wheels) == 1
    with zipfile.ZipFile(wheels[0]) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_wheel_holds_the_files_of_the_package_and_no_others(
    sources: list[Path], wheel: set[str]
) -> None:
    """A wheel is what pip installs. It must hold code and data, but no tests and no pages."""
    expected_files = {f"mempiler/{source.as_posix()}" for source in sources if is_shipped(source)}

    files = {name for name in wheel if ".dist-info/" not in name}
    assert files == expected_files


@pytest.mark.slow
def test_wheel_holds_the_license(wheel: set[str]) -> None:
    licenses = [name for name in wheel if name.endswith(".dist-info/licenses/LICENSE")]

    assert len(licenses) == 1


def test_every_import_is_a_declared_dependency(shipped_modules: list[Path]) -> None:
    """A package that only another package requires can be gone with that one's next release."""
    declared = package_names(PROJECT["dependencies"])
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if extra != "dev":
            declared |= package_names(requirements)

    installed_packages = packages_distributions()
    undeclared: list[str] = []
    for source in shipped_modules:
        if source.parent == INSIDE_OTHER_SYSTEMS:
            continue
        for module in outside_imports(source):
            not_installed = PACKAGES_NOT_INSTALLED_HERE.get(module, module)
            packages = installed_packages.get(module, [not_installed])
            if not declared & {package_name(package) for package in packages}:
                undeclared.append(f"{source}: {module}")

    assert undeclared == []


def outside_imports(source: Path) -> set[str]:
    """Return the top-level modules of other packages that a file imports, anywhere in it."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / source).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.split(".")[0])
    return modules - sys.stdlib_module_names


class MissingPackageMessage(NamedTuple):
    """A message of the product about a package that is not installed."""

    source: Path
    package: str
    extra: str | None
    """The extra that the user is told to install; None for Mempiler itself."""


def test_message_about_a_missing_package_names_the_extra_that_brings_it(
    shipped_modules: list[Path],
) -> None:
    """An extra is an optional set of packages, such as `pip install '.[models]'`.

    Where a package is missing, a message tells the user what to install. If it named the wrong
    extra, the user would install it, and see the same message again.
    """
    packages_of_extra: dict[str | None, set[str]] = {None: package_names(PROJECT["dependencies"])}
    for extra, requirements in PROJECT["optional-dependencies"].items():
        # These two are not for users.
        if extra not in ("dev", "docs"):
            packages_of_extra[extra] = package_names(requirements)

    messages: list[MissingPackageMessage] = []
    for source in shipped_modules:
        messages.extend(messages_about_missing_packages(source))
    wrong_messages = [
        message
        for message in messages
        if package_name(message.package) not in packages_of_extra.get(message.extra, set())
    ]

    assert len(messages) > 10
    assert wrong_messages == []


def messages_about_missing_packages(source: Path) -> Iterator[MissingPackageMessage]:
    """Return the messages of a file whose package and extra are plain texts."""
    functions = ("require_package", "MissingDependencyError")
    for node in ast.walk(ast.parse((ROOT / source).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        arguments: list[Any] = [
            argument.value for argument in node.args if isinstance(argument, ast.Constant)
        ]
        has_plain_arguments = len(arguments) == len(node.args)
        if node.func.id in functions and has_plain_arguments:
            extra = arguments[1] if len(arguments) > 1 else None
            yield MissingPackageMessage(source, arguments[0], extra)


def test_constraints_pin_every_dependency() -> None:
    """`constraints.txt` says which version of each package the tests ran with."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = package_names([line for line in lines if "==" in line])
    extras = PROJECT["optional-dependencies"]
    required = package_names([*PROJECT["dependencies"], *extras["dev"], *extras["docs"]])

    assert required - pinned == set()


def test_every_public_name_is_an_object_of_that_name() -> None:
    for name in mempiler.__all__:
        public_object = getattr(mempiler, name)
        if name == "optimizers":
            assert public_object.__name__ == "mempiler.optimizers"
        elif name == "__version__":
            assert isinstance(public_object, str)
        else:
            assert public_object.__name__ == name


def test_importing_the_package_imports_no_other() -> None:
    """Neither DSPy nor pydantic: `mempiler --help` and a plain import are instant."""
    code = """\
import sys
modules_before = set(sys.modules)
import mempiler
dir(mempiler)
print(*set(sys.modules) - modules_before)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    packages = {module.partition(".")[0] for module in process.stdout.split()}
    other_packages = packages - sys.stdlib_module_names - {"mempiler"}

    # An editable installation has a module of its own.
    assert [name for name in other_packages if not name.startswith("__editable__")] == []


def test_type_checkers_see_each_public_name_in_the_module_it_is_imported_from() -> None:
    """The package imports its names lazily; type checkers read a block of plain imports."""
    package = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in package.body if isinstance(node, ast.If)]
    assert len(blocks) == 1

    modules_by_name: dict[str | None, str] = {}
    for statement in blocks[0].body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            modules_by_name[alias.asname] = f".{statement.module or ''}"

    assert modules_by_name.pop("optimizers") == "."
    assert modules_by_name == mempiler._MODULES


COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SECRET_VALUE = re.compile(
    r"(password|key|token)\w*[\"']?\s*[:=]\s*[\"']?(?!\$\{|/run/secrets|null)[\w-]{6,}",
    re.IGNORECASE,
)
"""A password, key or token with its value."""
SERVE: Any = app.get_command(click.Context(app), "serve")
"""The command `mempiler serve`."""


def instructions(name: str) -> list[str]:
    """Return the arguments of every instruction of the Dockerfile with this name."""
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    return [
        line.removeprefix(f"{name} ") for line in text.splitlines() if line.startswith(f"{name} ")
    ]


def test_every_variable_of_the_image_and_the_service_is_one_that_serve_reads() -> None:
    """`serve` reads an option such as `--store` from a variable such as `MEMPILER_STORE`, too.

    A variable with a spelling mistake would be ignored without a message.
    """
    image_variables: set[str] = set()
    for line in instructions("ENV"):
        image_variables.update(pair.partition("=")[0] for pair in shlex.split(line))
    service_variables = set(SERVICES["mempiler"]["environment"])
    variables = {
        name for name in image_variables | service_variables if name.startswith("MEMPILER_")
    }
    variables_of_serve = {parameter.envvar for parameter in SERVE.params}

    # The folder of results belongs to no option.
    assert variables - {"MEMPILER_HOME"} <= variables_of_serve
    assert {"MEMPILER_PROGRAM", "MEMPILER_STORE", "MEMPILER_TOKEN_FILE"} <= variables


def test_no_secret_is_written_into_image_or_compose_file() -> None:
    assert not SECRET_VALUE.search(json.dumps(SERVICES))
    assert not SECRET_VALUE.search(DOCKERFILE)


@pytest.mark.parametrize(
    ("text", "has_secret"),
    [
        ("ENV OPENAI_API_KEY=sk-0123456", True),
        ('"POSTGRES_PASSWORD": "hunter22"', True),
        ('"POSTGRES_PASSWORD": "${POSTGRES_PASSWORD:?set it}"', False),
        ('"MEMPILER_TOKEN_FILE": "/run/secrets/tokens"', False),
    ],
)
def test_a_secret_that_is_written_out_is_found(text: str, has_secret: bool) -> None:
    """Values that come from the environment or from a file of secrets are none."""
    assert bool(SECRET_VALUE.search(text)) is has_secret


@pytest.mark.parametrize("name", SERVICES)
def test_passwords_of_a_service_come_from_the_environment(name: str) -> None:
    """Compose reads "${NAME:?message}" from the environment, and refuses to start without it."""
    for variable, value in SERVICES[name]["environment"].items():
        if "PASSWORD" in variable:
            assert str(value).startswith("${POSTGRES_PASSWORD:?")


@pytest.mark.parametrize("name", SERVICES)
def test_ports_of_a_service_are_open_on_this_machine_alone(name: str) -> None:
    """A port such as "8000:8000", without an address, would be open to the whole network."""
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_services_that_say_whether_they_are_healthy(name: str) -> None:
    """Compose can wait for a service to be ready only if that service has a health check."""
    for other in SERVICES[name].get("depends_on", {}):
        assert "healthcheck" in SERVICES[other]


def test_only_the_service_gets_the_keys_of_the_model() -> None:
    """The keys are in the file `.env` of the user, which need not exist."""
    services_with_keys = [name for name, service in SERVICES.items() if "env_file" in service]

    assert services_with_keys == ["mempiler"]
    assert SERVICES["mempiler"]["env_file"] == [{"path": ".env", "required": False}]


def test_the_image_installs_extras_that_the_project_has() -> None:
    """A command of the image writes what is to be installed. The test runs this command."""
    argument_lines = instructions("ARG")
    assert len(argument_lines) == 1
    extras = shlex.split(argument_lines[0])[0].removeprefix("EXTRAS=")

    dockerfile = DOCKERFILE.replace("\\\n", "")
    scripts = re.findall(r'python -c "(.*?)" > needed.txt', dockerfile, re.DOTALL)
    assert len(scripts) == 1

    process = subprocess.run(
        [sys.executable, "-c", scripts[0]],
        cwd=ROOT,
        env={"EXTRAS": extras, "PATH": ""},
        capture_output=True,
        text=True,
    )
    packages = package_names(process.stdout.splitlines())

    assert {"dspy", "psycopg", "mcp"} <= packages
    assert "torch" not in packages


def test_the_image_runs_serve_as_a_user_of_its_own() -> None:
    """Without a line "USER ..." in the last stage of the Dockerfile, it would run as root."""
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]

    assert "\nUSER mempiler\n" in last_stage
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["mempiler"]
    assert json.loads(instructions("CMD")[-1]) == ["serve"]


def test_the_image_reports_its_health() -> None:
    """Docker asks the service at this path whether it works."""
    assert "/health" in instructions("HEALTHCHECK")[0]


def test_the_builder_of_the_image_sees_every_folder_of_the_package_and_nothing_else() -> None:
    """`.dockerignore` lists what the builder sees; the image lacks a folder that it forgets."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    visible = {line.removeprefix("!") for line in lines if line.startswith("!")}
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    other_files = {
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "constraints.txt",
        "py.typed",
        "*.py",
    }

    assert "*" in lines
    assert folders <= visible
    assert other_files <= visible
    assert not visible & {"tests", ".git", ".env", "tokens.txt"}
    # Results of the developer's own runs.
    assert "runs/local" in lines


def test_the_proxy_has_the_limits_of_the_service() -> None:
    """Where the proxy had stricter limits than `serve`, those of `serve` would have no effect."""
    defaults = {parameter.name: parameter.default for parameter in SERVE.params}
    configuration = COMPOSE["configs"]["proxy"]["content"]
    setting = r"(read_header|read_body|idle|max_size|reverse_proxy) (\S+)"
    settings = dict(re.findall(setting, configuration))

    assert settings == {
        "read_header": "10s",
        "read_body": f"{defaults['timeout']:g}s",
        "idle": f"{defaults['keep_alive']:g}s",
        "max_size": f"{defaults['max_body'] // 1_000_000}MB",
        "reverse_proxy": "mempiler:8000",
    }


def test_the_proxy_is_optional_and_gets_the_name_of_the_site() -> None:
    """A service with a profile starts only if the user names the profile."""
    configuration = COMPOSE["configs"]["proxy"]["content"]

    assert SERVICES["proxy"]["profiles"] == ["proxy"]
    assert "SITE" in SERVICES["proxy"]["environment"]
    # Compose reads "$$" as one "$".
    assert "{$$SITE}" in configuration
