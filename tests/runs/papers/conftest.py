"""Papers that the command line finds."""

from collections.abc import Callable

import pytest
from mempiler.runs.papers.paper import Paper


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Callable[[Paper], None]:
    """A function that lets the command line find a paper, whatever name it is asked for."""

    def replace_papers(paper: Paper) -> None:
        monkeypatch.setattr("mempiler.runs.papers.paper.read_paper", lambda name: paper)

    return replace_papers
