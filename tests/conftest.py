"""What all tests share: an environment of their own, and fixtures.

The tests use no network and no keys of the user, write into temporary folders, and draw the same
examples in each run.
"""

import atexit
import gc
import importlib
import inspect
import os
import pkgutil
import shutil
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import certifi
import hypothesis
import pytest

from .command_line import CommandLine, KilledCommands, RunCommand, run_cli
from .scripted_engine import ScriptedEngine, answer_to_memory_r2

# The collector is off while everything is imported; `pytest_collection_finish` turns it on.
gc.disable()


def _keep_files_in_memory() -> None:
    """Put temporary files into memory, if the system has a file system for it.

    The tests create thousands of databases, and each commit waits for the disk. Processes that
    tests start inherit the folder. If the user has set `TMPDIR`, it stays as it is.
    """
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not memory.is_dir() or not os.access(memory, os.W_OK):
        return

    # Containers often have 64 MB, and some run no program from there.
    file_system = os.statvfs(memory)
    free_bytes = file_system.f_bavail * file_system.f_frsize
    if free_bytes < 4 * 1024**3 or file_system.f_flag & os.ST_NOEXEC:
        return

    os.environ["TMPDIR"] = str(memory)
    tempfile.tempdir = None  # forget the folder that was looked up before


def _isolate_environment(folder: Path) -> None:
    """Remove the user's keys from the environment, and let caches and results go into a folder.

    dspy, litellm, mlflow and datasets read these variables once, when they are imported.
    """
    for name in list(os.environ):
        if name.endswith("_API_KEY"):
            del os.environ[name]

    os.environ["DSPY_CACHEDIR"] = str(folder / "dspy")
    os.environ["HF_HOME"] = str(folder / "huggingface")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MPLBACKEND"] = "Agg"
    os.environ["MPLCONFIGDIR"] = str(folder / "matplotlib")
    os.environ["MEMPILER_HOME"] = str(folder / "home")
    os.environ["MEMPILER_MODELS"] = str(folder / "models")
    os.environ["MEMPILER_TRACES"] = "1"
    # Tests that look at MLflow ask for the fixture `mlflow_tracking`.
    os.environ["MEMPILER_TRACKING"] = "off"
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")


def _trust_one_certificate(folder: Path) -> None:
    """Let HTTP clients read one certificate instead of all: it takes 30 ms each.

    No test speaks TLS.
    """
    bundle = Path(certifi.where()).read_text(encoding="ascii")
    first_line = "-----BEGIN"
    last_line = "-----END CERTIFICATE-----"
    start = bundle.index(first_line)
    end = bundle.index(last_line) + len(last_line)

    certificate = folder / "certificate.pem"
    certificate.write_text(bundle[start:end], encoding="ascii")
    os.environ["SSL_CERT_FILE"] = str(certificate)


_keep_files_in_memory()
_FOLDER = Path(tempfile.mkdtemp(prefix="mempiler-tests-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
_isolate_environment(_FOLDER)
# `make integrations` installs packages from the network.
if "MEMPILER_SYSTEMS" not in os.environ:
    _trust_one_certificate(_FOLDER)

EMPTY_TRACKING_STORE = Path(
    tempfile.gettempdir(),
    f"mempiler-tests-of-{os.getuid()}",
    f"mlflow-{version('mlflow')}.db",
)
"""An empty tracking store that stays from run to run: MLflow takes seconds to create its tables."""

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, max_examples=25
)
# For a longer look at something: pytest --hypothesis-profile=thorough
hypothesis.settings.register_profile("thorough", deadline=None, database=None, max_examples=500)
hypothesis.settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that must run one after the other first.

    Otherwise one process would be left alone with them at the end.
    """
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish() -> None:
    """Let each new tracking store be a copy of an empty one, and configure the collector."""
    tracking_store = sys.modules.get("mempiler.runs.tracking.store")
    if tracking_store is not None:
        EMPTY_TRACKING_STORE.parent.mkdir(exist_ok=True)
        with warnings.catch_warnings(action="ignore"):
            tracking_store.create_database(f"sqlite:///{EMPTY_TRACKING_STORE}")
        tracking_store.create_tables = lambda path: shutil.copy(EMPTY_TRACKING_STORE, path)

    # What all tests import stays until the end. With Python's own thresholds the collector takes
    # a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collect once. pytest collects five times after this, which then has nothing to look at."""
    gc.collect()
    gc.freeze()


_connect = socket.socket.connect


def _connect_to_this_machine(self: socket.socket, address: Any) -> None:
    """Refuse connections to other machines; a test may talk to a server of its own."""
    if isinstance(address, tuple):
        host = address[0]
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise ConnectionRefusedError(f"tests run offline, but something connects to {host}")
    _connect(self, address)


socket.socket.connect = _connect_to_this_machine


def package_files() -> list[Path]:
    """Return the product's source files, relative to the root of the package."""
    import mempiler

    root = Path(mempiler.__file__).parent
    other_folders = {"tests", "perf", "docs", "build", "dist"}

    # Folders are chosen before they are walked: an environment in the checkout holds thousands of
    # files.
    files: list[Path] = []
    for path in root.iterdir():
        if path.name in other_folders or path.name.startswith("."):
            continue
        if path.is_dir():
            files.extend(path.rglob("*.py"))
        elif path.suffix == ".py" and path.name != "setup.py":
            files.append(path)
    return sorted(file.relative_to(root) for file in files)


def suite() -> list[Any]:
    """Return every signature class of the product, ordered by module and name."""
    import dspy
    from mempiler import signatures

    classes: list[Any] = []
    for module_info in pkgutil.walk_packages(signatures.__path__, f"{signatures.__name__}."):
        module = importlib.import_module(module_info.name)
        for _, member in inspect.getmembers(module, inspect.isclass):
            # A module also holds the classes that it imports.
            if issubclass(member, dspy.Signature) and member.__module__ == module_info.name:
                classes.append(member)
    return classes


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder and its files read-only within the block.

    Root may write whatever the modes say, so root becomes the user `nobody` meanwhile. Import
    what the block needs before it.
    """
    paths = [folder, *folder.iterdir()]
    modes = {path: path.stat().st_mode for path in paths}
    user = os.geteuid()

    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user of this machine can reach; `tmp_path` is for its owner alone."""
    with tempfile.TemporaryDirectory(prefix="mempiler-open-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def within(seconds: float, check: Callable[[], Any]) -> Any:
    """Call `check` until its result is true, or the time is over; return its last result."""
    deadline = time.monotonic() + seconds
    while True:
        result = check()
        if result or time.monotonic() >= deadline:
            return result
        time.sleep(0.01)


@pytest.fixture
def scripted() -> Callable[..., Any]:
    """A function that makes a metered model over a `ScriptedEngine`, with the LM cache off."""
    from mempiler.engines.limits import BudgetGuard
    from mempiler.engines.metered_lm import MeteredLM, Metering

    def make(
        reply: Callable[[str, str, int], dict[str, Any] | str],
        delay: float = 0.0,
        guard: BudgetGuard | None = None,
        answers: Any = None,
        prices: Any = None,
        **settings: Any,
    ) -> Any:
        metering = Metering(guard=guard or BudgetGuard(), answers=answers, prices=prices)
        defaults = {"cache": False, "temperature": 0.0, "num_retries": 0}
        return MeteredLM(
            "scripted/test",
            metering,
            engine=ScriptedEngine(reply, delay),
            **{**defaults, **settings},
        )

    return make


def values_below(root: Any) -> list[Any]:
    """Return an object and everything that it holds, however deep, but for code and classes."""
    code = ModuleType | FunctionType | MethodType | type
    values_by_id = {id(root): root}
    unvisited = [root]
    while unvisited:
        for value in gc.get_referents(unvisited.pop()):
            if id(value) not in values_by_id and not isinstance(value, code):
                values_by_id[id(value)] = value
                unvisited.append(value)
    return list(values_by_id.values())


def largest_container(root: Any) -> int:
    """Return the length of the longest collection, text or array that an object holds."""
    return max(len(value) for value in values_below(root) if isinstance(value, Sized))


@contextmanager
def listening(event_name: str, listener: Callable[..., None]) -> Iterator[None]:
    """Call `listener` for an event of SQLAlchemy's engines within the block, of any database."""
    from sqlalchemy import Engine, event

    event.listen(Engine, event_name, listener)
    try:
        yield
    finally:
        event.remove(Engine, event_name, listener)


@contextmanager
def tracking_in_mlflow() -> Iterator[None]:
    """Record runs in MLflow within the block, as users do by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMPILER_TRACKING", "mlflow")
        yield


@pytest.fixture
def mlflow_tracking() -> Iterator[None]:
    """The runs of the test are recorded in MLflow, as those of users are by default."""
    with tracking_in_mlflow():
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty store. To copy it takes a tenth of the time of creating the tables."""
    from mempiler import Store

    path = tmp_path_factory.mktemp("empty-store") / "memories.sqlite"
    Store(path).close()
    return path


@pytest.fixture
def store(empty_store: Path, tmp_path: Path) -> Iterator[Any]:
    """An empty store, open."""
    from mempiler import Store

    path = shutil.copy(empty_store, tmp_path / "memories.sqlite")
    with Store(path) as opened_store:
        yield opened_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server; tests that need it are skipped where there is none."""
    from .postgres import Postgres

    pytest.importorskip("psycopg")
    try:
        server = Postgres()
    except RuntimeError as error:
        pytest.skip(str(error))
    yield server
    server.stop()


@pytest.fixture
def fact_replies() -> Callable[[str, str, int], dict[str, Any]]:
    """The script of a model for Memory-R2 that stores every line; see `answer_to_memory_r2`."""
    return answer_to_memory_r2


@pytest.fixture
def make_history() -> Callable[..., Any]:
    """A function that makes a history: `make_history(3)` has sessions D1 to D3 of six turns.

    Ann and Bob speak in turn. Session D2 is on 3 February 2024.
    """
    from mempiler import History, Session, Turn

    places = ("Lisbon", "Oslo", "Quito", "Hanoi", "Accra", "Perth", "Turin", "Dakar")

    def make_session(session_number: int, num_turns: int) -> Any:
        place = places[session_number % len(places)]
        turns: list[Any] = []
        for turn_number in range(1, num_turns + 1):
            turn = Turn(
                id=f"D{session_number}:{turn_number}",
                speaker="Bob" if turn_number % 2 else "Ann",
                text=f"I saw {place} with {turn_number} friends",
            )
            turns.append(turn)
        return Session(
            id=f"D{session_number}", time=datetime(2024, session_number, 3), turns=tuple(turns)
        )

    def make(sessions: int = 3, turns: int = 6, id: str = "ann-bob") -> Any:  # noqa: A002
        items = [make_session(number, turns) for number in range(1, sessions + 1)]
        return History(id=id, items=tuple(items))

    return make


@pytest.fixture
def stub() -> Iterator[Callable[..., Any]]:
    """A function that starts servers which speak the OpenAI chat protocol; see `StubServer`."""
    from .stub_server import StubServer

    servers: list[Any] = []

    def start(script: Callable[[int, str], str | None] | None = None, **options: Any) -> Any:
        server = StubServer(script, **options)
        server.__enter__()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.die()


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> KilledCommands:
    """Runs commands in processes that can be killed."""
    # Their LM cache is not that of the tests: answers that a killed run paid for must come from
    # its own store.
    cache_folder = tmp_path_factory.mktemp("forks")
    return KilledCommands(cache_folder)


@pytest.fixture(scope="session")
def cli() -> RunCommand:
    """The function `run_cli`."""
    return run_cli


@pytest.fixture
def mempiler_cli() -> CommandLine:
    """Runs commands with a stub server as their model."""
    return CommandLine()
