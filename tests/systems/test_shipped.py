"""Workers of other people's systems: well-behaved, hostile, asking a model; their environments."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import httpx
import numpy as np
import openai
import pytest
from mempiler.engines.call_context import measure_usage
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.errors import BudgetError, EndpointError, UserError
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.results import Evaluation
from mempiler.systems import catalog, environment
from mempiler.systems.catalog import SYSTEMS, factory
from mempiler.systems.environment import STAMP, Environment
from mempiler.systems.process import LOG, System, SystemFailedError
from mempiler.systems.proxy import Proxy

from ..conftest import within
from ..run_inputs import run_inputs
from .conftest import ITEM, Start, script

NOISY = """
    def add(self, session):
        print('{}'); os.system('echo noise'); print('more', file=sys.stderr)
        super().add(session)
"""


def test_an_added_session_is_found_and_prints_of_the_system_go_to_its_log(start, capfd) -> None:
    system = start(NOISY)
    system.add(ITEM)
    assert system.search("Where does Ann live?", k=5) == [
        {"text": "I moved to Lisbon.", "ids": ["D1:1"]}
    ]
    system.close()
    assert capfd.readouterr() == ("", "")
    log = (system.folder / LOG).read_text()
    assert all(word in log for word in ("greetings", "garbage", "{}", "noise", "more"))


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("raise ValueError('no room')", r"ValueError: no room \(\w+\.py:\d+\)$"),
        ("return object()", "TypeError: object is no entry, and not JSON serializable"),
        ("(self.folder / 'big').open('wb').truncate(3 << 30)", "OSError: .*too large"),
        ("bytearray(9 << 30)", "MemoryError"),
    ],
)
def test_an_error_is_of_one_call(start: Start, does: str, reason: str) -> None:
    system = start(f"def add(self, session): {does}")
    with pytest.raises(SystemFailedError, match=f"^scripted: add: {reason}"):
        system.add(ITEM)
    assert system.search("x", k=1) == []


def test_a_method_that_the_system_lacks_is_named(start: Start) -> None:
    system = start()
    with pytest.raises(SystemFailedError, match=r"^scripted: ask: AttributeError: 'System' object"):
        system.ask("Where does Ann live?")


GARBAGE = """
    def add(self, session):
        for number in range(3, 999):
            with contextlib.suppress(OSError):
                os.write(number, bytes([255]) * 12)
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        ("def add(self, session): os._exit(3)", "ended by itself, status 3; last said: .*garbage"),
        ("def add(self, session): os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
        (GARBAGE, "gave no answer that can be read"),
    ],
)
def test_a_crash_is_one_error_and_so_is_every_call_after_it(
    start: Start, methods: str, reason: str
) -> None:
    system = start(methods)
    with pytest.raises(SystemFailedError, match=f"^scripted: .*{reason}"):
        system.add(ITEM)
    with pytest.raises(SystemFailedError, match=reason):
        system.search("x", k=1)


SPAWNING = """
    def add(self, session):
        child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
        (self.folder / 'child').write_text(str(child.pid))
        time.sleep(600)
"""


def test_a_system_that_hangs_can_be_ended_from_another_thread_with_its_child_processes(
    start: Start,
) -> None:
    system = start(SPAWNING)
    child = system.folder / "store" / "child"

    def end() -> None:
        assert within(20, lambda: child.exists() and child.read_text() != "")
        system.kill()

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(SystemFailedError, match="ended"):
        system.add(ITEM)
    ending.join()
    assert within(20, lambda: not _runs(int(child.read_text())))


def test_a_system_that_hangs_ends_when_its_parent_is_gone(start: Start) -> None:
    """As when the process that started it was killed, and could end nothing."""
    system = start(SPAWNING)
    child = system.folder / "store" / "child"
    system._worker.send_bytes(b'{"call": "add", "session": {"turns": []}}')
    assert within(20, lambda: child.exists() and child.read_text() != "")
    system._worker.close()
    assert system._process is not None
    assert system._process.wait(20) != 0
    assert within(20, lambda: not _runs(int(child.read_text())))


def test_a_system_gets_no_key_of_the_user(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-mine-too")
    system = start("def search(self, query, k): return [json.dumps(dict(os.environ))]")
    (told,) = system.search("x", k=1)
    assert "sk-mine" not in told
    assert str(system.folder / "home") in told


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # One that has ended and that nobody waited for still has its number.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def scored(place: Path, patch: pytest.MonkeyPatch, add: str = "", **more: Any) -> Evaluation:
    """What a system scores on the sample, whose `add` does this."""
    file = script(place / "theirs", add and f"def add(self, session): {add}")
    patch.setattr(
        catalog, "factory", lambda name: partial(System, name, Path(sys.executable), file, {})
    )
    return run_evaluate(
        "system:scripted", run_inputs("locomo", test=6, threads=1, **more), split="test"
    )


def test_a_system_is_scored_with_its_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scored(tmp_path, monkeypatch)
    assert found.program == "system:scripted"
    assert not found.failures
    assert all(row.hits > 0 for row in found.rows)


@pytest.mark.parametrize(
    ("hostile", "config", "reason"),
    [
        ("raise ImportError('no such thing')", {}, "ImportError: no such thing (scripted.py:"),
        ("os._exit(9)", {}, 'status 9; last said: {"result": "garbage"}'),
        ("time.sleep(600)", {"timeout": 2.0}, "no answer within 2 s"),
    ],
)
def test_a_hostile_one_is_failed_rows_with_a_reason(
    tmp_path, monkeypatch, hostile, config, reason
) -> None:
    found = scored(tmp_path, monkeypatch, hostile, set=config)
    assert all(row.failure is not None and reason in row.failure.message for row in found.rows)
    assert found.score == 0


ASKING = (
    "super().add(session); "
    "self.texts.append(['x', json.dumps(ask('/chat/completions', **{}))]); self.close()"
)
ASKED = "{'messages': [{'role': 'user', 'content': session['turns'][0]['text']}]}"


@pytest.mark.slow
def test_a_run_that_was_stopped_while_it_wrote_writes_anew_and_asks_no_model_again(
    tmp_path, monkeypatch
) -> None:
    """What the broken run stored is no part of what the resumed one finds."""

    def run(name: str, **more: Any) -> Evaluation:
        (tmp_path / name).mkdir()
        return scored(tmp_path / name, monkeypatch, ASKING.replace("{}", ASKED), **more)

    whole, broken = run("whole"), run("broken", max_calls=2)
    assert broken.stopped
    resumed = run("resumed", resume=str(RunFolder.open(str(broken.run_id)).path))
    assert [(row.answer, row.hits) for row in resumed.rows] == [
        (row.answer, row.hits) for row in whole.rows
    ]
    assert broken.calls["task"] + resumed.calls["task"] == whole.calls["task"]


CHAT = {"messages": [{"role": "user", "content": "Ann moved to Lisbon. Where did Ann move?"}]}
CHATTING = (
    "def add(self, session): self.texts.append(['x', json.dumps(ask('/chat/completions', **{}))])"
).replace("{}", json.dumps(CHAT))


def test_calls_are_those_of_the_run(start: Start) -> None:
    meter = Meter()
    system = start(CHATTING)
    with dspy.context(lm=language_model("offline", meter=meter)), measure_usage() as work:
        system.add(ITEM)
    used = meter.read()
    assert used.calls["task"] == 1
    assert work.usage.calls == 1
    assert used.input_tokens == work.usage.input_tokens > 0
    answer = json.loads(system.search("x", k=1)[0]["text"])
    assert "Lisbon" in answer["choices"][0]["message"]["content"]
    assert answer["usage"]["prompt_tokens"] == used.input_tokens


def test_a_budget_ends_the_run_and_not_the_system(start: Start) -> None:
    system = start(CHATTING)
    with dspy.context(lm=language_model("offline", guard=BudgetGuard(Limits(max_calls=1)))):
        system.add(ITEM)
        with pytest.raises(BudgetError, match="max-calls 1"):
            system.add(ITEM)
    assert json.loads(system.search("x", k=9)[1]["text"])["status"] == 400


def test_a_system_without_a_model_hears_so(start: Start) -> None:
    system = start(CHATTING)
    system.add(ITEM)
    assert "no language model was given" in system.search("x", k=1)[0]["text"]


@contextmanager
def serving(lm: Any) -> Iterator[Proxy]:
    """A proxy of a model."""
    with dspy.context(lm=lm), closing(Proxy(embedder())) as proxy:
        proxy.serve_here()
        yield proxy


def test_a_client_of_openai_gets_what_it_asks_for() -> None:
    with (
        serving(language_model("offline")) as proxy,
        openai.OpenAI(base_url=proxy.url, api_key=proxy.key) as client,
    ):
        texts = ["Ann moved", "", "Bob likes jazz"]
        rows = [each.embedding for each in client.embeddings.create(model="any", input=texts).data]
        whole = client.chat.completions.create(model="any", temperature=0.1, max_tokens=9, **CHAT)  # type: ignore
    np.testing.assert_allclose(rows, embedder().embed(texts), atol=1e-6)
    assert "Lisbon" in str(whole.choices[0].message.content)
    assert whole.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("content", ["", None])
def test_an_answer_that_was_cut_before_its_first_word_has_the_finish_reason_length(
    stub: Any, content: str | None
) -> None:
    server = stub(answer=lambda body: {"finish_reason": "length", "content": content})
    lm = language_model(server.model, api_base=server.url)
    with serving(lm) as proxy:
        [choice] = proxy.answer("chat/completions", CHAT)["choices"]
    assert choice["message"]["content"] == ""
    assert choice["finish_reason"] == "length"


REFUSED: list[tuple[str, Any, str | None, int, str]] = [
    (
        "/embeddings",
        {"input": ["x"]},
        "another",
        400,
        "the API key is not the one of this endpoint",
    ),
    ("/embeddings", {"input": [[1, 2]]}, None, 400, "a text or a list of texts"),
    ("/embeddings", {"input": "x", "dimensions": 7}, None, 400, "384 numbers, not 7"),
    ("/chat/completions", {**CHAT, "stream": True}, None, 400, "stream"),
    ("/chat/completions", ["x"], None, 422, "valid dictionary"),
    ("/audio", {}, None, 400, "there is no audio"),
]


def test_other_requests_are_refused() -> None:
    with serving(language_model("offline")) as proxy:
        for path, body, key, status, reason in REFUSED:
            headers = {"Authorization": f"Bearer {key or proxy.key}"}
            found = httpx.post(proxy.url + path, json=body, headers=headers)
            assert found.status_code == status, path
            assert reason in found.text, path


ROOT = Path(environment.__file__).parent
PAGE = (ROOT.parent / "docs" / "systems.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """An environment of no packages, whose first installation was broken off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMPILER_SYSTEMS", str(tmp_path_factory.mktemp("systems")))
        pins = tmp_path_factory.mktemp("pins") / "none.txt"
        pins.write_text("")
        found = Environment("none", pins)
        found.path.mkdir(parents=True)
        (found.path / "half").touch()
        found.install()
        yield found


@pytest.mark.slow
def test_a_half_installed_environment_is_made_anew_and_a_whole_one_is_not(
    made: Environment, tmp_path: Path
) -> None:
    assert made.is_installed
    assert made.python().exists()
    assert not (made.path / "half").exists()
    before = (made.path / STAMP).stat().st_mtime_ns
    made.install()
    assert (made.path / STAMP).stat().st_mtime_ns == before
    other = tmp_path / "other.txt"
    other.write_text("six==1.17.0\n")
    assert Environment("none", other).path != made.path


@pytest.mark.slow
def test_a_package_that_does_not_come_is_one_error_and_leaves_nothing_that_looks_whole(
    made, tmp_path, monkeypatch
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    pins = tmp_path / "missing.txt"
    pins.write_text("no-such-package==1\n")
    with pytest.raises(EndpointError, match=r"missing cannot be installed: .*no-such-package==1"):
        Environment("missing", pins).install()
    assert not Environment("missing", pins).is_installed


def test_errors_name_the_folder_that_cannot_be_written_and_the_command_that_installs(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="mem0 is not installed; run: mempiler fetch system:mem0"):
        factory("mem0")
    with pytest.raises(UserError, match=r"cannot be written: .*set MEMPILER_SYSTEMS"):
        SYSTEMS["mem0"].environment.install()


def test_list_has_every_system(cli: Any) -> None:
    found = json.loads(cli("list", "systems", "--json")[1])["systems"]
    assert list(found) == list(SYSTEMS)
    assert all(f"run: mempiler fetch system:{name}" in told for name, told in found.items())


def test_every_system_has_its_file_its_pins_and_its_row_of_the_page() -> None:
    names = {name.replace("-", "_") for name in SYSTEMS}
    files = {path.stem for path in (ROOT / "inside").glob("*.py")}
    assert files == names | {"__init__", "user_system", "worker", "sentence_transformers"}
    pins = {
        path.stem: path.read_text(encoding="utf-8").splitlines()
        for path in (ROOT / "pins").glob("*")
    }
    assert pins.keys() == SYSTEMS.keys()
    assert all("==" in line for lines in pins.values() for line in lines)

    for name, system in SYSTEMS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `system:{name}` |")]
        what, packages = row.split(" | ")[1:3]
        assert what == system.what
        pinned = {line.partition("==")[0].replace("_", "-").lower() for line in pins[name]}
        assert {package.partition("[")[0].lower() for package in packages.split(", ")} <= pinned
