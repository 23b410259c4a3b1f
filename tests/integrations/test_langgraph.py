"""The agent of `docs/own_systems.md`, with the published `langgraph`, in an environment that `make integrations` makes.

The pins were resolved with our own constraints, so that the packages stand beside ours as a user's would.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from mempiler.errors import EndpointError
from mempiler.systems.environment import Environment

from tests.own_systems_page import OF_A_GRAPH, write_files

ENVIRONMENT = Environment("langgraph", Path(__file__).parent / "langgraph.txt")


@pytest.fixture(scope="module")
def packages() -> Path:
    """Where `langgraph` was installed."""
    if not os.environ.get("MEMPILER_SYSTEMS"):
        pytest.skip("environments are made by `make integrations`")
    if os.environ.get("SYSTEMS"):
        pytest.skip("only these systems were asked for: " + os.environ["SYSTEMS"])
    try:
        (found,) = ENVIRONMENT.install().glob("lib/python*/site-packages")
    except EndpointError as error:
        pytest.skip(str(error))
    return found


def test_the_graph_of_the_page_is_scored_and_its_calls_count(packages: Path, tmp_path: Path) -> None:
    write_files(tmp_path)
    path = os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")]), str(packages)])
    environment = {**os.environ, "PYTHONPATH": path, "MEMPILER_HOME": str(tmp_path / "home")}
    (line,) = OF_A_GRAPH
    command = [sys.executable, "-m", *shlex.split(line), "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["program"], found["failures"]) == ("agent:agent", 0)
    assert found["answering"]["calls"] > 100
    assert 0.2 < found["retrieval"]["shown"] < 1
