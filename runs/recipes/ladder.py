"""A ladder: one program that is tuned by one optimizer after another, each beginning from the best one so far.

    start ── few-shot ── GEPA ── SFT ── LoGo-GRPO        prompts first, then weights
      dev: does the rung beat what it began from? then the next rung begins from it
      test: every rung, greedy and sampled, the same held-out questions, after that decision

A rung has a program (prompts, demos) and a model (weights); both are in the run's folder, under `ladder/RUNG`. A run
that is resumed reads the rungs that were scored in full (`kept`), and climbs the others; of a rung that was broken off,
LoGo-GRPO goes on at its last checkpoint.

Limits: one seed; a rung that loses on the dev questions is shown, and forgotten. The dev questions also choose the
checkpoint of LoGo-GRPO, and all rungs are compared on them, so that dev scores are a little too high; test scores are
not touched by that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy

from ...data.benchmark import Benchmark
from ...data.dataset import Split
from ...engines.meter import Usage
from ...engines.models import LOCAL, OFFLINE, endpoint_errors, is_local, keep
from ...errors import BudgetError, UserError
from ...optimizers.compile import Compilation, compile_program, plan_job
from ...optimizers.history import CandidateHistory
from ...optimizers.logo_grpo.policy import PolicyScore, score_policy
from ...optimizers.logo_grpo.teleprompter import fresh
from ...programs.adapter import adapter
from ...programs.program import MemoryProgram
from ..artifact import Manifest, save
from ..course import TINY
from ..evaluate import evaluate
from ..results import Evaluation, difference
from ..setup import Runtime, Setup, parameters
from ..tracking import Tracker, nested_in
from .kept import keep_step, kept_step
from .reinforced import course, reinforce
from .rungs import LOGO, Ladder, Rung, Step, sampled_difference, sureness
from .workbench import Workbench

START = "start"


@dataclass(frozen=True)
class _Scored:
    """Dev and test questions of one program, and what asking them took."""

    dev: Evaluation
    test: Evaluation
    sampled: PolicyScore
    used: Usage
    seconds: float


@dataclass(frozen=True)
class _Place:
    """A program with its weights, and how good it is."""

    label: str
    program: MemoryProgram
    lm: Any
    model: str
    dev: Evaluation
    test: Evaluation
    sampled: PolicyScore


def climb(ladder: Ladder, method: str, setup: Setup, bench: Workbench) -> list[Step]:
    """Climbs a ladder.

    Args:
        ladder: What to climb.
        method: A method whose writing asks a language model.
        setup: Data and models.
        bench: Counts, limits and notes of the recipe's run.

    Returns:
        The start and every rung that was scored in full; fewer where a limit was reached, which `bench.stopped` names.

    Raises:
        UserError: The model cannot be trained in this process, or a setting does not fit.
    """
    if not is_local(setup.lm):
        raise UserError(
            f"{setup.lm} cannot be trained in this process, which SFT and LoGo-GRPO take; use --lm local:NAME"
        )
    if bench.seeds > 1:
        raise UserError("a ladder is climbed once in a run; choose another seed with --seed, without --seeds")
    if setup.lm == TINY and setup.adapter is None:
        setup = replace(setup, adapter="compact")
    benchmark = setup.load(compiling=True)
    if benchmark.scorer.asked:
        raise UserError(f"{benchmark.name} is scored by a judge, which is no reward to train on; choose a metric")
    runtime = Runtime(setup, bench.meter, bench.guard, bench.folder)
    return _Climb(ladder, runtime, benchmark, bench).run(method)


class _Climb:
    """One climb with everything it needs."""

    def __init__(self, ladder: Ladder, runtime: Runtime, benchmark: Benchmark, bench: Workbench) -> None:
        self.ladder, self.runtime, self.benchmark, self.bench = ladder, runtime, benchmark, bench
        self.split: Split = runtime.setup.split(benchmark)
        self.folder = runtime.folder.path.absolute() / "ladder"

    def run(self, method: str) -> list[Step]:
        """The start and every rung."""
        program = self.runtime.program(method, self.benchmark)
        steps: list[Step] = []
        with self.runtime.context(program), endpoint_errors():
            lm: Any = dspy.settings.lm
            if self.ladder.answer_tokens:
                lm = lm.copy(max_tokens=self.ladder.answer_tokens)
            best = self._known_start(program, lm, steps) or self._start(program.deepcopy(), lm, steps)
            for rung in self.ladder.rungs:
                if best is not None:
                    best = self._known(rung, best, steps) or self._rung(rung, best, steps)
        return steps

    def _start(self, program: Any, lm: Any, steps: list[Step]) -> _Place | None:
        with dspy.context(lm=lm):
            for rung in self.ladder.rungs:
                self._check(rung, program)
        scored = self._scored(START, program, lm)
        if scored is None:
            return None
        model = f"{LOCAL}{lm.engine.model.name}"
        test = self._logged(START, {}, program, scored.test, model, {})
        dev = scored.dev
        steps.append(
            Step(
                START,
                "",
                "",
                test,
                scored.sampled,
                (None, dev.score),
                dev.n,
                sureness(dev),
                True,
                None,
                scoring=scored.used,
                scoring_seconds=scored.seconds,
                program=str(self.folder / START / "program"),
                model=model,
            )
        )
        keep_step(steps[-1], dev, self.folder / START)
        return _Place(START, program, lm, model, dev, test, scored.sampled)

    def _known_start(self, program: MemoryProgram, lm: Any, steps: list[Step]) -> _Place | None:
        """The start as an earlier go at the run scored it; None where it did not."""
        found = kept_step(self.folder / START, None, None)
        if found is None:
            return None
        step, dev = found
        steps.append(step)
        return _Place(START, program.deepcopy(), lm, step.model, dev, step.evaluation, step.sampled)

    def _known(self, rung: Rung, best: _Place, steps: list[Step]) -> _Place | None:
        """What is best after a rung that an earlier go at the run scored; None where it did not."""
        before = next(step for step in steps if step.label == best.label)
        found = kept_step(self.folder / rung.key, before, best.dev)
        if found is None:
            return None
        step, dev = found
        steps.append(step)
        if not step.kept:
            return best
        program = self.runtime.setup.saved(Path(step.program))
        lm = best.lm
        if step.model != best.model:
            lm = self.runtime.named(step.model, "task", None, self.runtime.setup.temperature)
            lm = lm.copy(max_tokens=self.ladder.answer_tokens) if self.ladder.answer_tokens else lm
        return _Place(rung.label, program, lm, step.model, dev, step.evaluation, step.sampled)

    def _check(self, rung: Rung, program: MemoryProgram) -> None:
        """Refuses settings before the first rung."""
        if rung.optimizer == LOGO:
            course(self.runtime.setup.lm, rung.settings)
        else:
            plan_job(program, self.benchmark, self._questions(rung), self._how(rung), self._proposer())

    def _rung(self, rung: Rung, best: _Place, steps: list[Step]) -> _Place | None:
        """Tunes and scores; the place that the next rung begins from, or None where a limit was reached."""
        before, began = self.bench.meter.read(), time.perf_counter()
        try:
            program, lm, told = self._tuned(rung, best)
        except BudgetError as error:
            self.bench.stopped = str(error)
            return None
        except UserError as error:
            if self.bench.guard.dead is not None:
                raise
            # Settings were checked before: a rung that finds nothing to learn from ends itself, not the ladder.
            program, lm, told = best.program, best.lm, f"nothing gained: {error}"
        seconds, used = time.perf_counter() - began, self.bench.meter.read() - before
        scored = self._scored(rung.label, program, lm)
        if scored is None:
            return None
        dev = scored.dev
        kept = (dev.score or 0.0) > (best.dev.score or 0.0)
        model = best.model if lm.engine is best.lm.engine else keep(lm, self.folder / rung.key / "model")
        scores = {"dev": [best.dev.score, dev.score], "kept": kept}
        test = self._logged(rung.label, rung.settings, program, scored.test, model, scores)
        steps.append(
            Step(
                rung.label,
                rung.optimizer,
                best.label,
                test,
                scored.sampled,
                (best.dev.score, dev.score),
                dev.n,
                sureness(dev),
                kept,
                difference(best.test, test),
                sampled_difference(best.sampled, scored.sampled),
                used,
                seconds,
                scored.used,
                scored.seconds,
                str(self.folder / rung.key / "program"),
                model,
                told,
            )
        )
        keep_step(steps[-1], dev, self.folder / rung.key)
        return _Place(rung.label, program, lm, model, dev, test, scored.sampled) if kept else best

    def _tuned(self, rung: Rung, best: _Place) -> tuple[MemoryProgram, Any, str]:
        """The tuned program, its model, and what is to be said."""
        self.bench.note(rung.label)
        setup, train = self.runtime.setup, self._questions(rung)
        if rung.optimizer == LOGO:
            split = replace(self.split, train=tuple(train))
            with dspy.context(adapter=adapter(setup.adapter or best.program.adapter)):
                return reinforce(
                    best.program, best.lm, self.benchmark, split, rung.settings, setup, self.folder / rung.key
                )
        history = CandidateHistory(self.bench.meter)
        with dspy.context(lm=best.lm):
            found = compile_program(best.program, self.benchmark, train, self._how(rung), self._proposer(), history)
        if history.trained is not None:
            return found, history.trained, ""
        changed = found.identities.of_program(found) != best.program.identities.of_program(best.program)
        said = [] if changed else ["changed nothing"]
        said += [f"ended before its time: {history.ended}"] if history.ended else []
        return found, best.lm, "; ".join(said)

    def _questions(self, rung: Rung) -> list[dspy.Example]:
        """The training questions a rung may use."""
        counted = [example for example in self.split.train if self.benchmark.counts(example)]
        return self.benchmark.interleave(counted)[: rung.questions]

    def _how(self, rung: Rung) -> Compilation:
        setup = self.runtime.setup
        return Compilation(rung.optimizer, seed=setup.seed, threads=setup.threads, settings=rung.settings)

    def _proposer(self) -> Any:
        """Proposes prompts: the offline engine unless a model is named, not the small model that is being trained."""
        setup = self.runtime.setup
        return replace(self.runtime, setup=replace(setup, prompt_lm=setup.prompt_lm or OFFLINE)).model("prompt")

    def _scored(self, label: str, program: MemoryProgram, lm: Any) -> _Scored | None:
        """Dev and test questions; None where a limit left some of them out."""
        before, began, found = self.bench.meter.read(), time.perf_counter(), []
        for part in ("dev", "test"):
            told = self.bench.note(f"{label}, {part} questions")
            asked, threads = getattr(self.split, part), self.runtime.setup.threads
            with dspy.context(lm=lm):
                found.append(evaluate(program, self.benchmark, asked, self.bench.meter, threads, told))
            if found[-1].stopped is not None:
                self.bench.stopped = found[-1].stopped
                return None
        try:
            sampled = self._sampled(program, lm)
        except BudgetError as error:
            self.bench.stopped = str(error)
            return None
        return _Scored(found[0], found[1], sampled, self.bench.meter.read() - before, time.perf_counter() - began)

    def _sampled(self, program: MemoryProgram, lm: Any) -> PolicyScore:
        """The counted test questions about memories written at temperature 1."""
        setup = self.runtime.setup
        counted = [example for example in self.split.test if self.benchmark.counts(example)]

        def metric(example: dspy.Example, prediction: dspy.Prediction) -> float:
            return float(self.benchmark.score(example, prediction).value)

        with dspy.context(adapter=adapter(setup.adapter or program.adapter)):
            return score_policy(program, counted, metric, fresh(lm), 1.0, "test", setup.threads)

    def _logged(
        self,
        label: str,
        settings: Mapping[str, Any],
        program: MemoryProgram,
        found: Evaluation,
        model: str,
        scores: Mapping[str, Any],
    ) -> Evaluation:
        """Saves a rung's program, and logs it in its own MLflow run."""
        folder: Path = self.folder / label.lower() / "program"
        source, setup = self.benchmark.source, self.runtime.setup
        data = {"name": self.benchmark.name, "file": source.name, "sha256": source.sha256, "sample": source.sample}
        manifest = Manifest(
            method=program.name,
            task=self.benchmark.task,
            benchmark={**data, "split_sha256": self.split.digest},
            optimizer={} if label == START else {"name": label, "seed": setup.seed, "settings": dict(settings)},
            lms={"task": model},
            scores={**scores, "result": found.summary()},
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        save(program, folder, manifest, setup.sign_key)
        tags = {"command": "reproduce", **nested_in(self.bench.parent), "variant": f"ladder/{label}"}
        with Tracker(f"rung-{label}-{self.benchmark.name}", tags) as tracker:
            logged = parameters(program, setup, self.benchmark) | {f"rung.{key}": v for key, v in settings.items()}
            tracker.params({**logged, "model": model})
            tracker.evaluation("evaluation", found)
            tracker.folder(folder, "program")
            return found.model_copy(update={"run_id": tracker.run_id})
