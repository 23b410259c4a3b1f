"""Making a PAL-Set is repeatable and gone on with: after a stop, a kill, a spent budget; and by the command."""

import json
import signal
import subprocess
import sys
import time

import pytest
from mempiler.data.check import check

from .conftest import good


def test_the_seed_decides_hours_and_plans_and_threads_do_not(made_palset):
    one, other = (made_palset(good, seed=seed, out=str(seed))[0] for seed in (0, 1))
    assert one["timeline_en.json"] == other["timeline_en.json"]
    assert one["input_en.json"] != other["input_en.json"]
    assert made_palset(good, out="again", threads=5)[0] == one


@pytest.fixture
def command(making):
    """Runs `mempiler make palset` into a folder; gives its exit code and output."""
    return lambda *words: making("palset", "--users", "1", "--months", "2", *words)


def test_a_killed_process_is_gone_on_with_and_pays_only_for_what_is_missing(command, stub, over_http, tmp_path):
    server = stub(answer=over_http(good))
    model = ["--lm", server.model, "--api-base", server.url, "--threads", "2"]
    words = ["make", "palset", "--users", "1", "--months", "2", "--out", str(tmp_path / "o"), *model]
    child = subprocess.Popen([sys.executable, "-m", "mempiler", *words], stdout=-3, stderr=-3)
    try:
        while child.poll() is None and server.answered < 25:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    paid = server.answered
    assert child.returncode == -signal.SIGKILL
    assert paid >= 25
    code, out, err = command(*model, "--resume", "--json")
    summary = json.loads(out)
    assert code == 0
    assert check("palbench.restate", summary["files"][0]).rows == ()
    asked = sum(row["accepted"] + row["retried"] for row in summary["steps"])
    # Only what was in flight on the two threads when the process died is paid for again.
    assert paid + summary["calls"] - asked <= 2
    assert server.answered == paid + summary["calls"]
    assert "use --on palbench.restate --data" in err


def test_the_offline_engine_ends_with_a_report_and_code_1(command, tmp_path):
    code, out, err = command("--attempts", "2", "--json")
    assert code == 1
    summary = json.loads(out)
    assert summary["files"] == []
    assert [one["step"] for one in summary["rejections"] if one["outcome"] == "given up"] == ["people", "user"]
    assert json.loads((tmp_path / "o" / "generation" / "report.json").read_text()) == summary
    assert "no user came through" in err
