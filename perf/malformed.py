"""Malformed answers: what each kind costs a memory and its answers, for every prompt of the five methods.

The engine is the offline engine; it spoils the answers of one predictor at a time, its first one alone or every one,
over a whole (small) conversation of a bundled sample. The result is compared with a run whose answers say the same in
the form that was asked for.

    unharmed            the memory and the answers are the same
    element lost        they differ; something was left out of an answer that was read, and counted
    answer lost         a whole answer could not be read, also the second time, and was counted
    silent              they differ, although nothing was counted that says that something was left out
    crashed             an error that is no counted failure
    sessions lost       sessions in the memory of the run it is compared with, of which this one holds no turn,
                        neither in a stored source nor unwritten

Usage:
    $ python perf/malformed.py > docs/malformed.md
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spoiled import KINDS, Kind, Spoiled, SpoiledEngine, well_formed

METHODS: Mapping[str, tuple[str, int, dict[str, Any]]] = {
    "pramem": ("movielens", 3, {"rounds": 3, "adjust_every": 3, "proposals": 3, "virtual_scenes": 2}),
    "pgr": (
        "personamem",
        3,
        {
            **{"every": 2, "merge_after": 1, "merge_score": 0.3, "augment": "rewrite", "augment_score": 0.1},
            **{"min_score": 0.0, "min_new": 1},
        },
    ),
    "memory-r2": ("locomo", 2, {}),
    "h2memory": ("palbench.select", 4, {"clusters": 1}),
    "rgmem": ("locomo", 2, {"theta_inf": 1, "theta_sum": 1}),
}
"""Benchmark, items of the history, and settings with which every prompt is asked soon."""
MODES = ("once", "always")
VERDICTS = ("unharmed", "element lost", "answer lost", "silent", "crashed")
LEFT_OUT = {"unknown id", "null", "field", "element", "cut", "parse", "refused", "too-long"}
"""Faults that say that something is missing."""


@dataclass
class Outcome:
    """What came of one run."""

    result: Any = None
    """Memory and answers, without counts."""
    turns: frozenset[str] = frozenset()
    """Turns that the memory holds or that are unwritten."""
    faults: Counter[str] = field(default_factory=Counter[str])
    lost: int = 0
    crashed: str = ""
    engine: Any = None


@dataclass
class Cell:
    """One kind, predictor and mode."""

    method: str
    predictor: str
    kind: str
    mode: str
    verdict: str
    sessions: int = 0
    told: str = ""

    @property
    def line(self) -> str:
        return f"{self.method} {self.predictor}: {self.kind}, {self.mode}: {self.verdict} {self.told}"


class Conversation:
    """One method over one small history, and a question or two about it.

    Args:
        method: Its name.
        items: Items of the history; those of `METHODS` if None.
    """

    def __init__(self, method: str, items: int | None = None) -> None:
        from mempiler.data.catalog import benchmark
        from mempiler.records import History

        name, most, self.settings = METHODS[method]
        loaded = benchmark(name)
        example = next(iter(loaded.examples))
        self.method, self.task = method, loaded.task
        self.history = History(id="past", items=tuple(example.history.items)[: items or most])
        self.example = example
        self.clean = self.run(SpoiledEngine())
        self.known: dict[str, Outcome] = {}

    @property
    def predictors(self) -> list[tuple[str, ...]]:
        """The output fields of every predictor that is asked, in order."""
        return list(dict.fromkeys(names for names, *_ in self.clean.engine.asked))

    def silent_predictors(self) -> list[str]:
        """Predictors that are never asked."""
        asked = set(self.predictors)
        found = self.program().all_predictors().items()
        return [name for name, one in found if tuple(one.signature.output_fields) not in asked]

    def program(self) -> Any:
        from mempiler.engines.embedders import embedder
        from mempiler.programs.catalog import build

        return build(self.method, self.task, embedder(), **self.settings)

    def run(self, engine: SpoiledEngine) -> Outcome:
        """Writes the history and answers, under an engine."""
        import dspy
        from mempiler.engines.meter import Meter, MeteredLM
        from mempiler.memory.provenance import stored_sources
        from mempiler.programs.failing import concerns_prompt
        from mempiler.programs.gather import in_order

        meter = Meter()
        lm = MeteredLM("offline/spoiled", meter, engine=engine, cache=False, temperature=0.0, num_retries=0)
        program, found = self.program(), Outcome(engine=engine)
        try:
            with dspy.context(lm=lm, trace=None, disable_history=True), in_order():
                memory = program.remember(self.history).memory
                found.result = {"memory": _plain(memory), "answers": [self._answered(program, memory)]}
            kept = {turn.id for each in memory.unwritten for turn in each.item.turns}
            found.turns = frozenset(stored_sources(memory) | kept)
        except Exception as error:
            if not concerns_prompt(error):
                found.crashed = f"{type(error).__name__}: {error}"[:200]
        for (_, outcome), count in meter.read().answers.items():
            found.lost += count if outcome == "lost" else 0
        for (_, fault), count in meter.read().faults.items():
            found.faults[fault] += count
        return found

    def _answered(self, program: Any, memory: Any) -> Any:
        import dspy
        from mempiler.programs.adapter import adapter
        from mempiler.programs.failing import concerns_prompt

        with dspy.context(adapter=adapter()):
            try:
                query = program.query_of(self.example, self.history)
                # A query that is a dialogue is summed up first by methods that do so.
                program.method.reader.recall(memory, query.model_copy(update={"modality": "dialogue"}))
                said = program.answer(memory, query)
            except Exception as error:
                if not concerns_prompt(error):
                    raise
                return "lost"
        hits = [(hit.id, hit.text) for hit in said.context.hits]
        shown = {name: said[name] for name in said.keys() if name not in ("memory", "context")}  # noqa: SIM118
        return json.loads(json.dumps([shown, hits, dict(said.context.notes)], default=str))

    def cells(self, predictor: tuple[str, ...], kinds: Iterable[Kind], modes: Iterable[str] = MODES) -> Iterator[Cell]:
        """Every kind that can happen to a predictor, in every mode."""
        for kind in kinds:
            fits = [
                prompt
                for names, prompt, values, schemas in self.clean.engine.asked
                if names == predictor and kind.spoil(values, schemas)
            ]
            for mode in modes if fits else ():
                yield self._cell(predictor, kind, mode, fits[0] if mode == "once" else None)

    def _cell(self, predictor: tuple[str, ...], kind: Kind, mode: str, only: str | None) -> Cell:
        found = self.run(SpoiledEngine(predictor, kind.spoil, only))
        due = self._due(predictor, kind, only)
        verdict = _verdict(found, due)
        cell = Cell(self.method, ", ".join(predictor), kind.name, mode, verdict, told=found.crashed)
        if found.crashed:
            return cell
        cell.sessions = sum(
            bool(due.turns & {turn.id for turn in item.turns}) and not found.turns & {turn.id for turn in item.turns}
            for item in self.history.items
        )
        cell.told = f"{dict(found.faults)} {_first_difference(found.result, due.result)}" if verdict == "silent" else ""
        return cell

    def _due(self, predictor: tuple[str, ...], kind: Kind, only: str | None) -> Outcome:
        """The run whose answers say the same as the malformed ones, in the form that was asked for."""

        def meant(values: Any, schemas: Any) -> Spoiled | None:
            found = kind.spoil(values, schemas)
            if found is None or found.meant is None:
                return None
            return Spoiled(well_formed(found.meant))

        if all(
            (made := kind.spoil(values, schemas)) is None or made.meant in (None, values)
            for names, _, values, schemas in self.clean.engine.asked
            if names == predictor
        ):
            return self.clean
        return self.run(SpoiledEngine(predictor, meant, only))


def _verdict(found: Outcome, due: Outcome) -> str:
    if found.crashed:
        return "crashed"
    if found.lost:
        return "answer lost"
    if found.result == due.result:
        return "unharmed"
    return "element lost" if set(found.faults - due.faults) & LEFT_OUT else "silent"


_COUNTS = {"counts", "outcome", "levels"}


def _plain(memory: Any) -> Any:
    """A memory as JSON without what it counts."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(part) for key, part in value.items() if key not in _COUNTS}
        return [bare(part) for part in value] if isinstance(value, list) else value

    return bare(memory.model_dump(mode="json"))


def _first_difference(one: Any, other: Any, path: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs: Any = ((f"{path}.{key}", one[key], other[key]) for key in one)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = ((f"{path}[{n}]", *both) for n, both in enumerate(zip(one, other, strict=True)))
    else:
        return f"at {path}: {str(one)[:150]} for {str(other)[:150]}"
    return next((_first_difference(a, b, where) for where, a, b in pairs if a != b), "")


def _work(job: tuple[str, int]) -> tuple[str, list[Cell]]:
    """All cells of one predictor of a method."""
    method, number = job
    # A cut answer is meant to be one: DSPy need not warn of each.
    logging.getLogger("dspy.clients.lm").setLevel(logging.ERROR)
    conversation = _made(method)
    cells = list(conversation.cells(conversation.predictors[number], KINDS.values()))
    return method, cells


_conversations: dict[str, Conversation] = {}


def _made(method: str) -> Conversation:
    if method not in _conversations:
        _conversations[method] = Conversation(method)
    return _conversations[method]


def main() -> None:
    arguments = _arguments()
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="mempiler-benchmark-") as folder:
        # DSPy reads it when it is imported.
        os.environ.update(DSPY_CACHEDIR=folder, TQDM_DISABLE="1")
        conversations = {method: _made(method) for method in arguments.methods or METHODS}
        jobs = [(method, n) for method, made in conversations.items() for n in range(len(made.predictors))]
        cells: dict[str, list[Cell]] = defaultdict(list)
        bad: list[Cell] = []
        with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
            for method, found in pool.imap_unordered(_work, jobs):
                cells[method] += found
                print(f"{method} {found[0].predictor if found else ''} {time.time() - begun:.0f} s", file=sys.stderr)
                bad += [cell for cell in found if cell.verdict in ("silent", "crashed") or cell.sessions]
                for cell in (cell for cell in found if cell in bad):
                    print(
                        cell.line, f"({cell.sessions} sessions)" if cell.sessions else "", file=sys.stderr, flush=True
                    )
    unasked = [f"{method}: {name}" for method, made in conversations.items() for name in made.silent_predictors()]
    _print_page({method: cells[method] for method in conversations}, unasked)
    raise SystemExit(1 if bad else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What malformed answers cost, by kind and prompt.")
    parser.add_argument("methods", nargs="*", choices=[*METHODS, []], help="[default: all]")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def _print_page(cells: dict[str, list[Cell]], unasked: list[str]) -> None:
    rows = [cell for found in cells.values() for cell in found]
    print("# Malformed answers\n")
    print("What answers in a form that was not asked for cost a memory and its answers. Made with\n")
    print(f"    python perf/malformed.py {' '.join(sys.argv[1:])}".rstrip())
    print(_ABOUT.format(kinds=len(KINDS), cells=len(rows)))
    if unasked:
        print(f"Never asked in these conversations: {', '.join(unasked)}.\n")
    head = f"| {' | '.join(VERDICTS)} |"
    print(f"| method | cells {head} sessions lost |\n|---|---|{'---|' * len(VERDICTS)}---|")
    for method, found in [*cells.items(), ("all", rows)]:
        print(f"| {method} | {len(found)} | {_counts(found)} | {sum(cell.sessions for cell in found)} |")
    for title, kept in (("Recoverable kinds", True), ("Kinds of which nobody could recover the content", False)):
        own = [cell for cell in rows if KINDS[cell.kind].recoverable is kept]
        print(f"\n## {title}\n\n| kind | cells {head}\n|---|---|{'---|' * len(VERDICTS)}")
        for name in [name for name, each in KINDS.items() if each.recoverable is kept]:
            same = [cell for cell in own if cell.kind == name]
            print(f"| {name} | {len(same)} | {_counts(same)} |")
        print(f"| all | {len(own)} | {_counts(own)} |")
        if kept and own:
            cheap = sum(cell.verdict in VERDICTS[:2] for cell in own) / len(own)
            print(f"\nAt most the broken element is lost in {cheap:.1%} of the cells of recoverable kinds.")


def _counts(cells: list[Cell]) -> str:
    count = Counter(cell.verdict for cell in cells)
    return " | ".join(str(count[verdict]) for verdict in VERDICTS)


_ABOUT = """
{kinds} kinds of malformed answers for every prompt of the five methods, each once (the first answer alone) and always
(every answer of that prompt, also where it is asked again), over the beginning of a conversation of a bundled sample:
{cells} cells. The engine is the offline engine (extractive, no language model), whose answers are spoiled: the table is
about what is read and counted, not about scores.

- unharmed: memory and answers are those of a run whose answers say the same in the form that was asked for.
- element lost: they differ; an answer was read without an element or a field, and that was counted. That nothing
  else is missing besides is not checked.
- answer lost: an answer could not be read, also the second time, and that was counted. Turns that were to be taken in
  stay as they were said (`unwritten`); a refinement, a label, a theory or a principle is only missing.
- silent: they differ, and no count says that something was left out. Crashed: an error that is no counted failure.
- sessions lost: sessions of which the memory it is compared with holds turns, and this one none, neither as a source
  nor unwritten.

A kind is left out where it cannot happen (a text has no elements). A text that is cut off without a word cannot be told
from one that ends there, and is not in the table.
"""


if __name__ == "__main__":
    main()
