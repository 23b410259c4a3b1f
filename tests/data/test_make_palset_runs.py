"""Making a PAL-Set is repeatable and gone on with after a kill."""

import json
import signal
import subprocess
import sys
import time

from mempiler.data.check import check

from .conftest import good


def test_the_seed_decides_hours_and_plans_and_threads_do_not(made_palset):
    one, other = (made_palset(good, seed=seed, out=str(seed))[0] for seed in (0, 1))
    assert one["timeline_en.json"] == other["timeline_en.json"]
    assert one["input_en.json"] != other["input_en.json"]
    assert made_palset(good, out="again", threads=5)[0] == one


SCRIPT = """
import json, sys
from pathlib import Path
import dspy
from mempiler.data.synthesis.palset.make import make_palset
from mempiler.data.synthesis.palset.people import Setting
from mempiler.data.synthesis.runner import Runner
from mempiler.engines.models import language_model
from mempiler.runs.run_store import RunStore

model, address, folder = sys.argv[1:]
runner, store = Runner(attempts=10, threads=2), RunStore(Path(folder, "answers.sqlite"))
with dspy.context(lm=language_model(model, api_base=address, answers=store.answers)):
    files = make_palset(1, Path(folder, "pal"), Setting("en", 2, 0, runner), note=lambda line: None)
print(json.dumps({"files": [str(path) for path in files], **runner.report.to_dict()}))
"""
"""What a user runs, and runs again."""


def test_a_killed_process_is_gone_on_with_and_pays_only_for_what_is_missing(stub, over_http, tmp_path):
    server = stub(answer=over_http(good))
    command = [sys.executable, "-c", SCRIPT, server.model, server.url, str(tmp_path)]
    child = subprocess.Popen(command, stdout=-3, stderr=-3)
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
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert check("palbench.restate", found["files"][0]).rows == ()
    asked = sum(row["accepted"] + row["retried"] for row in found["steps"])
    # Only what was in flight on the two threads when the process died is paid for again.
    assert server.answered - asked <= 2
