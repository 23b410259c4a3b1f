"""perf/: rows and tables are those of the pages; what searches find and take."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.engines.encoder import TOKEN_WIDTH, Encoder, TextEncoding
from mempiler.engines.rerankers import TokenMatch
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.weights import SignalWeights

ROOT = Path(__file__).parents[2]
GIVEN = Namespace(only=None, data=None, conversation=None, mem0="nowhere")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a script of `perf`."""
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    return importlib.import_module


def test_writes_that_are_killed_take_time(script: Any) -> None:
    kill = script("kill")
    writer, begun = kill.program(0.02).method.writer, time.perf_counter()
    writer.finalize(writer.update(writer.Memory(), kill.sessions(1, 1)[0][1]).memory)
    assert time.perf_counter() - begun >= 0.03


def test_the_page_has_every_row(script: Any) -> None:
    bench = script("bench")
    page = (ROOT / "docs/costs.md").read_text(encoding="utf-8")
    declared = {(row.work, row.at) for part in bench.PARTS for row in bench.PARTS[part](GIVEN)}
    cells = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert declared == {(row[0].removeprefix(" "), row[1]) for row in cells if row[0] not in (" work", " ---")}


@pytest.mark.slow
def test_counts_of_calls_are_those_of_the_page(script: Any) -> None:
    bench = script("bench")
    page = (ROOT / "docs/costs.md").read_text(encoding="utf-8")
    rows = {
        row.work: row.cells() for row in bench.PARTS["calls"](GIVEN) if "way" not in row.work and "once" in row.value
    }
    found = rows["memory-r2, all questions of a conversation"]
    assert f"| {found[0]} | {found[1]} | {found[2]} |" in page


DATA = ROOT / "docs" / "data" / "evidence.json"


COMMAND = (
    "mempiler compile turn-rag --benchmark locomo --data locomo2.json --optimizer labeled --lm gguf:qwen2.5-coder-0.5b"
)
CELL = {
    **{"on": "locomo", "seed": 0, "lm": "qwen2.5-coder-0.5b", "variant": ""},
    "command": f"{COMMAND} --train 3 --dev 4 --test 4 --threads 2 --force",
}


@pytest.fixture
def evidence(cli: Any, script: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with the offline engine in the place of the model, its commands in this process."""
    found = script("evidence")

    def offline(command: list[str], env: dict[str, str], **settings: Any) -> Any:
        swapped = [{"gguf:qwen2.5-coder-0.5b": "offline"}.get(part, part) for part in command[3:]]
        home = Path(env["MEMPILER_HOME"])
        with monkeypatch.context() as patch:
            patch.setenv("MEMPILER_HOME", str(home))
            return subprocess.CompletedProcess(command, *cli(*swapped))

    monkeypatch.setattr(found, "subprocess", SimpleNamespace(run=offline))
    return found


@pytest.fixture
def run(evidence: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the script over one cell; gives what the file holds then."""
    data = tmp_path / "evidence.json"
    data.write_text(json.dumps({"cells": [CELL]}))

    def started(*arguments: str) -> dict[str, Any]:
        sample = ROOT / "data" / "samples" / "locomo.json"
        given = [f"--locomo={sample}", f"--data={data}", f"--out={tmp_path}", *arguments]
        monkeypatch.setattr(sys, "argv", ["evidence", *given])
        evidence.main()
        return json.loads(data.read_text())

    return started


def test_a_cell_is_run_once_and_goes_on_where_it_was(run: Any, tmp_path: Path) -> None:
    first = run()
    (cell,) = first["cells"]
    assert cell["method"] == "turn-rag"
    assert cell["with"] == "labeled"
    assert cell["n"] == 3
    assert cell["went on"] is False
    assert str(tmp_path) not in json.dumps(first), "figures are to be read elsewhere"
    assert "--data locomo2.json" in cell["command"]
    assert [len(cell["questions"][phase]["score"]) for phase in ("before", "after")] == [4, 4]
    assert run() == first
    (again,) = run("--again")["cells"]
    assert again["went on"]
    assert again["questions"] == cell["questions"]
    assert len(list(tmp_path.glob("*/home/*/run.json"))) == 1


def test_tables_over_all_cells_are_those_of_the_documentation(script: Any, tmp_path: Path) -> None:
    found = json.loads(DATA.read_text(encoding="utf-8"))
    bare = {name: found[name] for name in ("cells", "weights")}
    script("evidence").keep(bare, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == found
    (row,) = [each for each in found["overview"] if (each["method"], each["adapter"]) == ("h2memory", "chat")]
    assert row["above zero"] == ["labeled", "bootstrap-random"]
    assert row["mipro"] == "="
    assert row["n"] == 12
    assert row["labeled"] > row["before"]
    starts = [each for each in found["adapters"] if each["with"] == "(before)"]
    assert len(starts) == 8
    assert all(each["difference"]["mean"] == pytest.approx(each["chat"] - each["auto"]) for each in starts)


@pytest.mark.parametrize("name", ["longmemeval", "memoryquest"])
def test_turns_that_lend_their_scores_find_no_less(script: Any, name: str) -> None:
    retrieval = script("retrieval")
    told = retrieval.histories(name)
    raw, lent = (
        np.concatenate([retrieval.indexed(Index(weights=weights), asked)[0] for asked in told]).mean(axis=0)
        for weights in (SignalWeights(neighbour_shares={}), SignalWeights())
    )
    assert (lent >= raw).all()
    assert lent[0] > raw[0]


class Drawn(Encoder):
    """Stands for an encoder: its pass of a query multiplies as much as MiniLM's, ten million numbers a word."""

    layers = np.ones((384, 27_648), np.float32)

    def __init__(self) -> None: ...

    def __call__(self, texts: Sequence[str]) -> list[TextEncoding]:
        draw = np.random.default_rng(len(texts))
        rows = [draw.integers(-40, 40, (len(text.split()), TOKEN_WIDTH), np.int8) for text in texts]
        if len(texts) == 1:
            np.ones((len(rows[0]), 384), np.float32) @ self.layers
        return [TextEncoding(draw.standard_normal(384, np.float32), tokens) for tokens in rows]

    def words(self, text: str, start: int = 0) -> list[str]:
        return text.split()


@pytest.mark.slow
def test_a_query_of_twenty_times_the_turns_costs_twice_as_much_at_most() -> None:
    encoder: Any = Drawn()
    draw, indexes, shares = np.random.default_rng(1), dict[int, Index](), 1 / np.arange(1, 5001)
    queries = [f"What did Ann say of {' '.join(f'w{n}' for n in draw.choice(5000, 6))} in May 2023?" for _ in range(60)]
    for size in (600, 12_000):
        made = TextEmbedder("drawn", encoder, 384)
        made.reranker = TokenMatch(made)
        index = indexes[size] = Index(made, hybrid=True)
        entries = list[Entry]()
        for n, row in enumerate(draw.choice(5000, (size, 25), p=shares / shares.sum())):
            text, said = " ".join(f"w{word}" for word in row), datetime(2023, 1 + n * 11 // size, 1)
            entries.append(Entry(id=str(n), text=text, speaker="AB"[n % 2], time=said, tags={DIALOGUE: str(n // 20)}))
        index.add(entries)
        index.search(queries[:20], 10)
    taken: dict[int, list[float]] = {size: [] for size in indexes}
    for query, (size, index) in product(queries[20:], indexes.items()):  # in turn: a slow while is slow for both
        begun = time.process_time()
        index.search([query], 10)
        taken[size].append(time.process_time() - begun)
    costs = {size: sorted(found)[len(found) // 4] for size, found in taken.items()}
    assert costs[12_000] <= 2 * costs[600]
