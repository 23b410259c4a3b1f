"""A worker, well-behaved and hostile: what it does is an answer or one error, and it leaves nothing behind."""

import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.guard import Limits
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.results import Evaluation
from mempiler.runs.setup import Setup
from mempiler.systems import catalog
from mempiler.systems.process import LOG, System, SystemFailedError

from ..conftest import within
from .conftest import ITEM, Start, script

NOISY = """
    def add(self, session):
        print('{}'); os.system('echo noise'); print('more', file=sys.stderr)
        super().add(session)
"""


def test_what_is_added_is_found_and_what_it_prints_goes_to_its_log(start, capfd) -> None:
    system = start(NOISY)
    system.add(ITEM)
    assert system.search("Where does Ann live?", k=5) == [{"text": "I moved to Lisbon.", "ids": ["D1:1"]}]
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
def test_a_crash_is_one_error_and_so_is_every_call_after_it(start: Start, methods: str, reason: str) -> None:
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


def test_one_that_hangs_can_be_ended_from_another_thread_with_all_it_started(start: Start) -> None:
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


def test_one_that_holds_on_ends_when_nobody_listens(start: Start) -> None:
    """As when the process that started it was killed, and could end nothing."""
    system = start(SPAWNING)
    child = system.folder / "store" / "child"
    system._worker.send_bytes(b'{"call": "add", "session": {"turns": []}}')
    assert within(20, lambda: child.exists() and child.read_text() != "")
    system._worker.close()
    assert system._process is not None
    assert system._process.wait(20) != 0
    assert within(20, lambda: not _runs(int(child.read_text())))


def test_it_is_given_no_key_of_the_user(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
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
    patch.setattr(catalog, "factory", lambda name: partial(System, name, Path(sys.executable), file, {}))
    return run_evaluate("system:scripted", Setup("locomo", test=6, threads=1, **more), part="test")


def test_it_is_scored_with_what_it_recalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scored(tmp_path, monkeypatch)
    assert found.program == "system:scripted"
    assert not found.failures
    assert all(row.hits > 0 for row in found.rows)


@pytest.mark.parametrize(
    ("hostile", "config", "reason"),
    [
        ("raise ImportError('no such thing')", {}, "ImportError: no such thing (scripted.py:"),
        ("os._exit(9)", {}, 'status 9; last said: {"result": "garbage"}'),
        ("time.sleep(600)", {"timeout": 5.0}, "no answer within 5 s"),
    ],
)
def test_a_hostile_one_is_failed_rows_with_a_reason(tmp_path, monkeypatch, hostile, config, reason) -> None:
    found = scored(tmp_path, monkeypatch, hostile, config=config)
    assert all(row.failure is not None and reason in row.failure.message for row in found.rows)
    assert found.score == 0


ASKING = """super().add(session); self.texts.append(['x', json.dumps(ask('/chat/completions', **{}))]); self.close()"""
ASKED = "{'messages': [{'role': 'user', 'content': session['turns'][0]['text']}]}"


def test_a_run_that_was_stopped_while_it_wrote_writes_anew_and_asks_no_model_again(tmp_path, monkeypatch) -> None:
    """What the broken run stored is no part of what the resumed one finds."""

    def run(name: str, **more: Any) -> Evaluation:
        (tmp_path / name).mkdir()
        return scored(tmp_path / name, monkeypatch, ASKING.replace("{}", ASKED), **more)

    whole, broken = run("whole"), run("broken", limits=Limits(max_calls=2))
    assert broken.stopped
    resumed = run("resumed", resume=str(RunFolder.open(str(broken.run_id)).path))
    assert [(row.answer, row.hits) for row in resumed.rows] == [(row.answer, row.hits) for row in whole.rows]
    assert broken.calls["task"] + resumed.calls["task"] == whole.calls["task"]
