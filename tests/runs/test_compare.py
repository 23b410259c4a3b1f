"""Comparing runs: hand-worked differences, plain words where n is too small, and runs read back as they were kept."""

import gzip
from collections.abc import Sequence
from typing import Any

import pytest
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.data.judge import PreferenceJudge
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.programs.adapter import adapter
from mempiler.records import Failure
from mempiler.runs.compare import BASIS, Recorded, compare, preferences, recorded
from mempiler.runs.folder import RunFolder
from mempiler.runs.pages.html import keep_page
from mempiler.runs.pages.page import DOCUMENT, run_page
from mempiler.runs.rows import Row

from .evaluations import evaluation, refusal, row

MEMORYQUEST = {"benchmark": "memoryquest", "options": {"metric": "evidence"}}


def run(rows: Sequence[Row], name: str = "run", basis: dict[str, Any] | None = None, **changed: Any) -> Recorded:
    return Recorded(name, evaluation(rows, names={"4": "single-hop"}, **changed), basis or {})


@pytest.mark.parametrize("key", BASIS)
def test_what_makes_a_difference_beside_the_programs_is_warned_of(key):
    rows = [row("q1", 1.0)]
    (note,) = compare([run(rows, basis={key: "one"}), run(rows, basis={key: "other"})]).notes
    assert f"{BASIS[key]} does, too: one and other" in note
    assert compare([run(rows, basis={key: "one"})] * 2).notes == ()


@pytest.fixture
def kept(tmp_path, monkeypatch) -> RunFolder:
    """A finished evaluation of two questions, one failed, with a line break of Unicode in its answer."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    folder = RunFolder.create("evaluate-x", {"command": "evaluate", "options": {"metric": "f1"}})
    failure = Failure(kind="parse", where="q2", message="no field")
    found = evaluation(
        [row("q1", 1.0, answer="one\u2028two"), row("q2", 0.0, failure=failure)],
        write_failures=1,
        failed_writes=(Failure(kind="parse", where="ann, item D1, extract", message="garbled"),),
    )
    keep_page(folder.path, run_page("evaluate", folder.path.name, {"score": found}))
    folder.update(status="finished", result=found.summary(), parameters={"lm": "openai/x", "judge_hash": "ab"})
    return folder


def test_a_run_is_read_back_as_it_was_kept(kept):
    found = recorded(kept.path.name[-4:])
    assert found.name == kept.path.name
    assert found.evaluation.summary() == kept.read()["result"]
    assert [each.answer for each in found.evaluation.rows] == ["one\u2028two", "answer"]
    assert [each.where for each in found.evaluation.failed_writes] == ["ann, item D1, extract"]
    assert (found.basis["lm"], found.basis["judge_hash"], found.basis["metric"]) == ("openai/x", "ab", "f1")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda page: page.write_bytes(b"none"), "is not the page of a run"),
        (lambda page: page.write_bytes(gzip.compress(b'{"command": 1}')), "is not the page of a run"),
        (lambda page: page.unlink(), "no result yet (status finished); finish it with its own command and --resume"),
    ],
)
def test_a_run_that_is_not_whole_is_refused_in_one_line(kept, harm, words):
    harm(kept.path / DOCUMENT)
    assert words in refusal(recorded, str(kept.path))


@pytest.mark.parametrize(
    ("says", "rate", "tied", "counts"),
    [
        ("the second run's", 1.0, 0.0, (4, 0, 0)),
        ("the first run's", 0.0, 0.0, (0, 0, 4)),
        ("what stands first", 0.5, 0.0, (0, 4, 0)),
        ("tie", 0.0, 1.0, (0, 4, 0)),
    ],
)
def test_the_win_rate_counts_whose_responses_are_preferred(stub, says, rate, tied, counts) -> None:
    asked = [(str(each.id), str(each.question)) for each in load_benchmark("memoryquest").examples[:4]]
    first, second = (
        Recorded(name, evaluation(row(id, question=question, answer=name) for id, question in asked), {}, MEMORYQUEST)
        for name in ("the first run's", "the second run's")
    )

    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"].split("[[ ## response_w3k8 ## ]]")[1]
        shown = text.split("[[ ## ")[0].strip()
        choice = "tie" if says == "tie" else "w3k8" if says in (shown, "what stands first") else "t5n1"
        return f"[[ ## reasoning ## ]]\nSo.\n\n[[ ## choice ## ]]\n{choice}\n\n[[ ## completed ## ]]"

    server = stub(answer=answer)
    judge = PreferenceJudge(language_model(server.model, Meter(), "judge", server.url), adapter("chat"))
    found = preferences(first, second, judge)
    assert (found.n, found.rate, found.tied) == (4, rate, tied)
    assert (found.wins, found.ties, found.losses) == counts
