"""Keeps the tests to themselves: caches in a temporary folder, no network, no keys, the same examples each time."""

import atexit
import gc
import importlib
import inspect
import io
import json
import multiprocessing
import os
import pkgutil
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from multiprocessing import forkserver
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import certifi
import hypothesis
import pytest

gc.disable()  # while everything is imported and collected; `pytest_collection_finish` enables it


def _keep_files_in_memory() -> None:
    """Put temporary files into memory where the system has a file system for it: there no write waits for a disk.

    The tests create thousands of databases, and each commit waits for the disk. Processes that tests start inherit
    the folder. Nobody's own choice of a folder is changed.
    """
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not memory.is_dir() or not os.access(memory, os.W_OK):
        return
    # Containers often have 64 MB, and some run no program from there.
    room = os.statvfs(memory)
    if room.f_bavail * room.f_frsize < 4 * 1024**3 or room.f_flag & os.ST_NOEXEC:
        return
    os.environ["TMPDIR"] = str(memory)
    tempfile.tempdir = None  # what was looked up before


_keep_files_in_memory()
# Before the first import of dspy, litellm, mlflow or datasets: they read these once.
_FOLDER = Path(tempfile.mkdtemp(prefix="mempiler-tests-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
for _name in [name for name in os.environ if name.endswith("_API_KEY")]:
    del os.environ[_name]
os.environ.update(
    DSPY_CACHEDIR=str(_FOLDER / "dspy"),
    HF_HOME=str(_FOLDER / "huggingface"),
    HF_HUB_OFFLINE="1",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    MLFLOW_DISABLE_TELEMETRY="true",
    MPLBACKEND="Agg",
    MPLCONFIGDIR=str(_FOLDER / "matplotlib"),
    MEMPILER_HOME=str(_FOLDER / "home"),
    MEMPILER_MODELS=str(_FOLDER / "models"),
    MEMPILER_TRACES="1",
    XDG_CACHE_HOME=str(_FOLDER / "cache"),
)


def _trust_one_certificate() -> None:
    """Let clients of HTTP read one certificate instead of all: it takes 30 ms each, and no test speaks TLS."""
    bundle = Path(certifi.where()).read_text(encoding="ascii")
    last_line = "-----END CERTIFICATE-----"
    certificate = _FOLDER / "certificate.pem"
    certificate.write_text(bundle[bundle.index("-----BEGIN") : bundle.index(last_line)] + last_line, encoding="ascii")
    os.environ["SSL_CERT_FILE"] = str(certificate)


# `make integrations` installs packages from the network.
if "MEMPILER_SYSTEMS" not in os.environ:
    _trust_one_certificate()

_STORE = Path(tempfile.gettempdir(), f"mempiler-tests-of-{os.getuid()}", f"mlflow-{version('mlflow')}.db")
"""An empty tracking store, kept from one run of the tests to the next: MLflow makes its tables in seconds."""

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=25)
hypothesis.settings.load_profile("ci")
# For a longer look at something: pytest --hypothesis-profile=thorough
hypothesis.settings.register_profile("thorough", deadline=None, database=None, max_examples=500)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that must run one after the other first, so that no process is left alone with them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish() -> None:
    """Makes every tracking store of this process a copy of one, and frees the collector of what all tests import."""
    if tracking := sys.modules.get("mempiler.runs.tracking.store"):
        _STORE.parent.mkdir(exist_ok=True)
        with warnings.catch_warnings(action="ignore"):
            tracking.create_database(f"sqlite:///{_STORE}")
        tracking.create_tables = lambda path: shutil.copy(_STORE, path)
    gc.freeze()
    # A tenth of all the time is the collector's otherwise.
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Look through all objects once; pytest does so five times, of which the later four find the same."""
    gc.collect()
    gc.freeze()


_connect = socket.socket.connect


def _connect_at_home(self: socket.socket, address: Any) -> None:
    """Refuses connections to other machines; a test may still talk to a server of its own."""
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise ConnectionRefusedError(f"tests run offline, but something connects to {address[0]}")
    _connect(self, address)


socket.socket.connect = _connect_at_home


def package_files() -> list[Path]:
    """The package's own source files, below its root."""
    import mempiler

    root, outside = Path(mempiler.__file__).parent, {"tests", "perf", "docs", "build", "dist", "setup.py"}
    # Folders are chosen before they are walked: an environment in the checkout holds thousands of files.
    rooms = [path for path in root.iterdir() if path.name not in outside and not path.name.startswith(".")]
    paths = [path for room in rooms for path in (room.rglob("*.py") if room.is_dir() else [room])]
    return sorted(path.relative_to(root) for path in paths if path.suffix == ".py")


def suite() -> list[Any]:
    """Every signature class of the suite, each from the module that defines it, by module and name."""
    import dspy
    from mempiler import signatures

    found: list[Any] = []
    for each in pkgutil.walk_packages(signatures.__path__, f"{signatures.__name__}."):
        module = importlib.import_module(each.name)
        members = (kind for _, kind in inspect.getmembers(module, inspect.isclass))
        found += [kind for kind in members if issubclass(kind, dspy.Signature) and kind.__module__ == each.name]
    return found


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take the right to write a folder and its files away from this process, for the block.

    Root may write whatever the modes say, so root is nobody meanwhile. What the block needs must be imported before.
    """
    modes = {path: path.stat().st_mode for path in (folder, *folder.iterdir())}
    user = os.geteuid()
    for path in modes:
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
        Path(name).chmod(0o755)
        yield Path(name)


def within(seconds: float, check: Callable[[], Any]) -> Any:
    """Waits until something is so; what was found at last."""
    until = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < until:
        time.sleep(0.01)
    return found


class ScriptedEngine:
    """An engine whose answers a test writes: `reply(kind, text, n)` gives the output fields of one call.

    `kind` is the name of the first output field, `text` the user messages, `n` counts the calls of that kind.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def __init__(self, reply: Callable[[str, str, int], dict[str, Any] | str], delay: float = 0.0) -> None:
        self.reply = reply
        self.delay = delay
        self.system, self.heat = "", 0.0  # of the latest call
        self.prompts: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    @property
    def calls(self) -> Counter[str]:
        return Counter(kind for kind, _ in self.prompts)

    def complete(self, request: Any) -> Any:
        from dspy.lm15 import Message, Response, Usage

        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or ())
        kind = re.search(r"Your output fields are:\s*1\. `(\w+)`", system)
        text = "\n".join(message.text for message in request.messages if message.role == "user")
        with self._lock:
            name = kind.group(1) if kind else ""
            self.prompts.append((name, text))
            n = self.calls[name]
        if self.delay:
            time.sleep(self.delay)
        self.system, self.heat = system, request.config.temperature or 0.0
        reply = self.reply(name, text, n)
        reply = chat_fields(**reply) if isinstance(reply, dict) else reply
        usage = Usage(input_tokens=len(text) // 4, output_tokens=len(reply) // 4)
        return Response(
            id=None, model=request.model, message=Message.assistant(reply), finish_reason="stop", usage=usage
        )

    def __deepcopy__(self, memo: object) -> "ScriptedEngine":
        return self


@pytest.fixture
def scripted() -> Callable[..., Any]:
    """Makes a metered LM over a scripted engine; the LM cache is off unless asked for."""
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
        settings = {"cache": False, "temperature": 0.0, "num_retries": 0, **settings}
        metering = Metering(guard=guard or BudgetGuard(), answers=answers, prices=prices)
        return MeteredLM("scripted/test", metering, engine=ScriptedEngine(reply, delay), **settings)

    return make


def values_below(root: Any) -> list[Any]:
    """Return what an object holds, however deep; code and classes are not looked into."""
    found, waiting = {id(root): root}, [root]
    while waiting:
        for value in gc.get_referents(waiting.pop()):
            if id(value) not in found and not isinstance(value, ModuleType | FunctionType | MethodType | type):
                found[id(value)] = value
                waiting.append(value)
    return list(found.values())


def largest_container(root: Any) -> int:
    """Return the length of the longest collection, text or array that an object holds, however deep."""
    return max(len(value) for value in values_below(root) if isinstance(value, Sized))


@contextmanager
def listening(event_name: str, listener: Callable[..., None]) -> Iterator[None]:
    """Call `listener` for an event of SQLAlchemy's engines that happens in the block, of any database."""
    from sqlalchemy import Engine, event

    event.listen(Engine, event_name, listener)
    try:
        yield
    finally:
        event.remove(Engine, event_name, listener)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty store, to be copied: to create the tables takes ten times as long."""
    from mempiler import Store

    path = tmp_path_factory.mktemp("empty-store") / "memories.sqlite"
    Store(path).close()
    return path


@pytest.fixture
def store(empty_store: Path, tmp_path: Path) -> Iterator[Any]:
    """An empty store."""
    from mempiler import Store

    with Store(shutil.copy(empty_store, tmp_path / "memories.sqlite")) as opened:
        yield opened


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


def lines_of(prompt: str) -> list[dict[str, str]]:
    """The turns of a prompt of Memory-R2 as facts, one for each line."""
    text = prompt.rpartition("[[ ## dialogue ## ]]")[2].partition("[[ ## earlier")[0]
    lines = re.findall(r"^\[(D\d+:\d+)\](?: \(.*?\))? (\w+): (.*)$", text, re.MULTILINE)
    return [{"speaker": who, "turn_id": id, "fact": said} for id, who, said in lines]


def facts_of(prompt: str) -> list[dict[str, str]]:
    """The facts that a prompt of Memory-R2 gives to its manager."""
    return json.loads(prompt.split("[[ ## new_facts ## ]]")[1].split("[[ ##")[0].split("Respond with")[0])


def chat_fields(**values: Any) -> str:
    """A completion in the chat format."""
    parts = [f"[[ ## {key} ## ]]\n{v if isinstance(v, str) else json.dumps(v)}" for key, v in values.items()]
    return "\n\n".join([*parts, "[[ ## completed ## ]]"])


@pytest.fixture
def fact_replies() -> Callable[[str, str, int], dict[str, Any]]:
    """Scripted Memory-R2: every line is a fact, every fact is inserted, the answer is the first memory's text."""

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "facts":
            return {"facts": lines_of(text)}
        if kind == "operations":
            said = [(f["speaker"], f["fact"], f["turn_id"]) for f in facts_of(text)]
            return {"operations": [{"op": "INSERT", "speaker": w, "content": c, "turn_id": t} for w, c, t in said]}
        found = re.search(r"^\[\w+(?::\d+)?\](?: \(.*?\))? (?:\w+: )?(.*)$", text, re.MULTILINE)
        return {**({"reasoning": ""} if kind == "reasoning" else {}), "answer": found.group(1) if found else "nothing"}

    return reply


@pytest.fixture
def make_history() -> Callable[..., Any]:
    """Makes a history of short sessions: `make_history(3)` has sessions D1 to D3 of six turns by Ann and Bob."""
    from mempiler import History, Session, Turn

    places = ("Lisbon", "Oslo", "Quito", "Hanoi", "Accra", "Perth", "Turin", "Dakar")

    def turn(s: int, t: int) -> Any:
        return Turn(id=f"D{s}:{t}", speaker=("Ann", "Bob")[t % 2], text=f"I saw {places[s % 8]} with {t} friends")

    def session(s: int, turns: int) -> Any:
        return Session(id=f"D{s}", time=datetime(2024, s, 3), turns=tuple(turn(s, t) for t in range(1, turns + 1)))

    def make(sessions: int = 3, turns: int = 6, id: str = "ann-bob") -> Any:
        return History(id=id, items=tuple(session(s, turns) for s in range(1, sessions + 1)))

    return make


@pytest.fixture
def stub() -> Iterator[Callable[..., Any]]:
    """Starts servers that speak the OpenAI chat protocol: `stub(script)`, see `stub_server.py` for the faults."""
    from .stub_server import StubServer

    servers: list[Any] = []

    def start(script: Callable[[int, str], str | None] | None = None, **options: Any) -> Any:
        servers.append(StubServer(script, **options).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.die()


FORKED = """
import os
from mempiler.cli import main
os.environ.update(environment)
nowhere = os.open(os.devnull, os.O_RDWR)
os.dup2(nowhere, 1), os.dup2(nowhere, 2)
main(words)
"""
IMPORTED = (
    "dspy",
    "mlflow.store.tracking.sqlalchemy_store",
    "nltk.stem",
    "sklearn.metrics",
    "mempiler.runs.evaluate",
)
"""What takes seconds, and is done once: commands are forked off a process that has it."""


class Forks:
    """Runs a command in a process of its own, which can be killed."""

    def start(self, words: list[str], home: Path, **environment: str) -> None:
        """Starts a command with a results folder of its own, and what else its environment is to have."""
        home.mkdir()
        shutil.copy(_STORE, home / "mlflow.db")
        given = {"words": words, "environment": {"MEMPILER_HOME": str(home), **environment}}
        self._home, self._process = (
            home,
            multiprocessing.get_context("forkserver").Process(target=exec, args=(FORKED, given)),
        )
        self._process.start()

    def kill(self, server: Any, answers: int) -> str:
        """Kills it when the server has given so many answers; returns the run's folder."""
        assert server.wait(answers)
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL
        (run,) = self._home.glob("*/run.json")
        assert json.loads(run.read_text())["status"] == "running"
        return str(run.parent)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Forks:
    """Runs commands that are killed."""
    forkserver.set_forkserver_preload(list(IMPORTED))
    with pytest.MonkeyPatch.context() as patch:
        # Their LM cache is not that of the tests: what a killed run was told must come from its own store.
        patch.setenv("DSPY_CACHEDIR", str(tmp_path_factory.mktemp("forks")))
        forkserver.ensure_running()
    return Forks()


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def found(self) -> dict[str, Any]:
        """The object that `--json` printed."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The one line that says what went wrong; progress bars and the line about the data come before it."""
        *before, line = self.err.splitlines()
        assert line.startswith("mempiler: ")
        assert not any(other.startswith(("mempiler: ", "Traceback")) for other in before)
        return line

    @property
    def resume(self) -> str:
        """The run that the error message says can be resumed."""
        return re.findall(r"--resume (\S+) goes on", self.line)[-1]


class Mempiler:
    """The command line in this process, on small parts of the bundled sample."""

    @staticmethod
    def arguments(server: Any, *words: str, train: int = 8, dev: int = 4, test: int = 4, threads: int = 1) -> list[str]:
        """A command's arguments with the stub as its model; failed calls are not repeated unless `words` say so."""
        sizes = ["--train", str(train), "--dev", str(dev), "--test", str(test), "--threads", str(threads)]
        model = ["--lm", server.model, "--api-base", server.url, "--retries", "0"]
        # A paper names its benchmarks itself.
        on = [] if words[0] == "reproduce" else ["--benchmark", "locomo"]
        return [*words[:2], *on, "--json", *model, *sizes, *words[2:]]

    def __call__(self, server: Any, *words: str, **sizes: int) -> Ran:
        return Ran(*run_cli(*self.arguments(server, *words, **sizes)))


def run_cli(*words: object) -> tuple[int, str, str]:
    """Runs a command in this process: its exit code, standard output and standard error."""
    from mempiler.cli import main

    code: Any = 0
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
    return int(code or 0), out.getvalue(), err.getvalue()


@pytest.fixture(scope="session")
def cli() -> Callable[..., tuple[int, str, str]]:
    """`run_cli`."""
    return run_cli


@pytest.fixture
def mempiler_cli() -> Mempiler:
    """Runs commands against a stub server."""
    return Mempiler()
