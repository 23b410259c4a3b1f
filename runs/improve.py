"""Improve a registered program on the questions of its users: one round of `mempiler improve`.

    1. export                   the questions, from a store with feedback, or from a file
    2. split by user            new questions of a half of the users decide (`round_split.py`)
    3. reserve the questions    that decide, before the decision is known (`decided_questions.py`)
    4. compile                  the program that the alias names, on the other users' questions
    5. decide                   with the same test as any compile (`promotion.py`)
    6. register                 the new program as a version, and move the alias to it

A round works in a folder of its own, which is removed at its end, and MLflow gets only its numbers.
So only the registered program could keep text of a user; `user_text.py` looks for such text.

Of the processes that share a results folder, only one improves a model at a time. If somebody moves
the alias during a round, the round registers nothing.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.jsonl import JsonlBenchmark
from ..engines.fair_semaphore import IN_FLIGHT
from ..engines.limits import BudgetGuard
from ..engines.meter import Meter
from ..errors import BrokenRunError, EndpointError, RunInterrupted, UserError
from ..optimizers.catalog import OPTIMIZERS
from ..optimizers.compile import CompileConfig
from ..programs.identity import writer_digest
from ..programs.program import MemoryProgram
from .artifact import open_program
from .compile import run_compile
from .compile_result import CompileResult
from .decided_questions import new_round_id, read_decided, release_questions, reserve_questions
from .evaluate import ProgressFactory, no_progress
from .folder import RunFolder
from .gate import GateDecision
from .improvement import Improvement, Outcome
from .inputs import RunInputs
from .manifest import read_manifest
from .model_registry import REGISTRY_PREFIX, find_version
from .publish import add_version
from .results_folder import create_folder
from .role_models import check_models
from .round_folder import round_folder
from .round_split import MIN_USERS, RoundSplit, split_nothing, split_round
from .run import Parent
from .user_text import find_user_text

if TYPE_CHECKING:
    from ..memory.store.store import Store

OPTIMIZERS_WITHOUT_DEMOS = ("gepa", "copro", "settings")
"""Optimizers that change only instructions or settings of the method.

The others add demos to prompts: training questions with their answers.
"""


@dataclass(frozen=True)
class ImproveConfig:
    """Where the questions of a round come from, and what the round needs and allows."""

    store: Store | str | Path | None = None
    """The store whose feedback becomes questions; None if the inputs name a file of questions."""
    tenant: str | None = None
    """Only questions of this tenant of the store; None for all."""
    min_users: int = MIN_USERS
    """The least number of users whose questions must decide."""
    allow_user_text: bool = False
    """Whether to register a program even if its prompts contain text of users."""


@dataclass(frozen=True)
class _Target:
    """The registered model that is improved, and the version that its alias names."""

    address: str
    """The address of the alias, e.g. "models:/memory@prod"."""
    name: str
    """The name of the registered model, e.g. "memory"."""
    alias: str
    """E.g. "prod"."""
    version: str
    """The version that the alias named when the round began, e.g. "3"."""

    @classmethod
    def find(cls, address: str) -> _Target:
        """Look up the version that an alias names now.

        Raises:
            UserError: It names no alias of a registered model.
        """
        name, _, alias = address.removeprefix(REGISTRY_PREFIX).partition("@")
        if not address.startswith(REGISTRY_PREFIX) or not alias:
            raise UserError(f"{address} names no alias of a model; write models:/NAME@ALIAS")
        return cls(address, name, alias, str(find_version(address).version))

    @property
    def pinned_address(self) -> str:
        """The address of the version, e.g. "models:/memory/3"."""
        return f"{REGISTRY_PREFIX}{self.name}/{self.version}"

    def refuse_moved_alias(self) -> None:
        """Raise a UserError if the alias was moved to another version since the round began."""
        version_now = str(find_version(self.address).version)
        if version_now != self.version:
            raise UserError(
                f"{self.address}: named version {self.version} when the round began, and names"
                f" {version_now} now; nothing was registered, start another round"
            )


def run_improve(
    address: str,
    inputs: RunInputs,
    compile_config: CompileConfig,
    config: ImproveConfig | None = None,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
) -> Improvement:
    """Compile a registered program on new questions, and register the result if it is better.

    Args:
        address: `models:/NAME@ALIAS`.
        inputs: Data, models and limits. `execution.min_n` is how many questions must decide.
        compile_config: Optimizer, stage and settings.
        config: Where the questions come from, and what a round needs.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.

    Raises:
        UserError: An argument does not fit, another process improves the model, or the alias was
            moved meanwhile.
        EndpointError: A model cannot be reached. The next round may decide on the same questions.
        BrokenRunError: Too many questions failed.
    """
    config = config or ImproveConfig()
    _refuse_optimizer(compile_config, config.allow_user_text)
    target = _Target.find(address)

    min_questions = inputs.config.execution.min_n
    with round_folder(target.name) as folder:
        benchmark = _read_questions(inputs, config, folder)
        if benchmark is None:
            return _too_few_questions(target, split_nothing(min_questions, config.min_users))
        split = split_round(
            benchmark,
            read_decided(target.name),
            min_questions,
            config.min_users,
            seed=inputs.config.data.seed,
        )
        if split.shortage is not None:
            return _too_few_questions(target, split)

        round_inputs = replace(inputs, user_benchmark=_round_benchmark(benchmark, split))
        check_models(round_inputs)
        current_round = _Round(target, split, round_inputs, compile_config, config, folder)
        return current_round.run(progress, meter or Meter())


def _too_few_questions(target: _Target, split: RoundSplit) -> Improvement:
    """Return the result of a round that ended at once, because it has too few questions."""
    return Improvement(
        address=target.address,
        outcome="too few questions",
        reason=f"missing: {split.shortage}",
        version_before=target.version,
        version_after=target.version,
        new_questions=split.new_questions,
        decided_questions=0,
        trained_questions=0,
    )


@dataclass(frozen=True)
class _Round:
    """A round that has enough questions."""

    target: _Target
    split: RoundSplit
    inputs: RunInputs
    compile_config: CompileConfig
    config: ImproveConfig
    folder: Path
    """Is removed at the end of the round."""

    def run(self, progress: ProgressFactory, meter: Meter) -> Improvement:
        """Compile, decide, and register the new program if it was promoted."""
        name = self.target.name
        round_id = new_round_id()
        # Before the decision: if the process dies after it, the next round must not decide on the
        # same questions again.
        reserve_questions(name, round_id, self.split.dev_digests)
        try:
            result = self._compile(round_id, progress, meter)
        except EndpointError:
            # Nothing was decided. And the failure does not depend on the scores, so deciding on the
            # same questions later is no second try.
            release_questions(name, round_id)
            raise

        _, compiled_on_dev = result.dev
        has_compared = result.is_changed and compiled_on_dev is not None
        if not has_compared:
            # No other program was scored on these questions, so the next round may decide on them.
            release_questions(name, round_id)
            return self._improvement(result, "kept", _rejection_reason(result), decided=0)

        decided = len(self.split.dev)
        if not result.promoted:
            return self._improvement(result, "kept", _rejection_reason(result), decided)

        current_program = self._open_current_program(result)
        refusal = self._refuse_registration(result, current_program)
        if refusal is not None:
            return self._improvement(result, "kept", refusal, decided)

        new_version = self._register(result)
        why_promoted = result.promotion.statement
        improvement = self._improvement(result, "promoted", why_promoted, decided, new_version)
        # A service refuses memories that were written by another writer.
        writer_before = writer_digest(current_program.method.writer)
        writer_after = writer_digest(result.program.method.writer)
        return replace(improvement, needs_rebuild=writer_before != writer_after)

    def _open_current_program(self, result: CompileResult) -> MemoryProgram:
        """Open the program that the alias names."""
        opened = open_program(
            self.target.pinned_address,
            allow_code=self.inputs.config.method.allow_code,
            # Nothing is sent to the embedder here.
            embedder=read_manifest(result.folder).embedder,
        )
        return opened.program

    def _compile(self, round_id: str, progress: ProgressFactory, meter: Meter) -> CompileResult:
        """Compile the current program in the folder of the round.

        Raises:
            RunInterrupted: The user stopped the round.
            BrokenRunError: Too many questions failed.
        """
        execution = self.inputs.config.execution
        guard = BudgetGuard(self.inputs.config.limits, max(IN_FLIGHT, execution.threads))
        run_folder = RunFolder(self.folder / round_id)
        create_folder(run_folder.path)
        run_folder.write({"settings": {}, "status": "running"})
        parent = Parent(
            run_folder,
            guard,
            tags={"mempiler.improve": self.target.address},
            numbers_only=True,
        )
        with closing(run_folder.store):
            try:
                return run_compile(
                    self.target.pinned_address,
                    self.inputs,
                    self.compile_config,
                    progress=progress,
                    meter=meter,
                    parent=parent,
                )
            except RunInterrupted as stop:
                # The folder with the answers is removed, so there is nothing to resume.
                raise RunInterrupted(f"{self.target.address} stays as it was", ()) from stop
            except BrokenRunError as error:
                raise BrokenRunError(
                    f"{self.target.address}: too many questions failed, so nothing was decided;"
                    f" try the model with mempiler evaluate {self.target.address}"
                ) from error

    def _refuse_registration(
        self, result: CompileResult, current_program: MemoryProgram
    ) -> str | None:
        """Return why a better program must not be registered; None if it may be."""
        has_trained_weights = result.model is not None
        if has_trained_weights:
            return "The new program needs the weights that the round trained, and these are removed"
        if self.config.allow_user_text:
            return None

        examples = [*self.split.train, *self.split.dev]
        user_text = find_user_text(result.program, current_program, examples)
        if user_text is None:
            return None
        return (
            f"The new program is better, but its prompts contain {user_text};"
            " --allow-user-text would register it"
        )

    def _register(self, result: CompileResult) -> str:
        """Register the new program, move the alias to it, and return its version.

        Raises:
            UserError: The alias was moved meanwhile, or the store cannot be written.
        """
        # The new program was compared with the version that the alias named when the round began.
        # If somebody has moved the alias since, nothing is known about the version that it names.
        self.target.refuse_moved_alias()

        # `mempiler publish` asks the gate of the registry for this decision. Here the compile has
        # made it already, by the same rule.
        decision = GateDecision(self._registry_description(result), result.promotion)
        registered = add_version(
            result.folder,
            result.program,
            self.target.name,
            self.target.alias,
            decision,
        )
        return registered.version

    def _registry_description(self, result: CompileResult) -> str:
        """Return what the model registry says of the new version: one line with its dev score."""
        _, compiled_on_dev = result.dev
        assert compiled_on_dev is not None, "a promoted program was scored"
        assert compiled_on_dev.score is not None, "a promoted program has answered questions"
        why_promoted = result.promotion.statement
        return (
            f"improve: dev {compiled_on_dev.score:.3f}"
            f" (n = {compiled_on_dev.n}, {compiled_on_dev.lm})"
            f" against version {self.target.version}: {why_promoted}"
        )

    def _improvement(
        self,
        result: CompileResult,
        outcome: Outcome,
        reason: str,
        decided: int,
        new_version: str | None = None,
    ) -> Improvement:
        """Return the result of the round.

        Args:
            result: The result of its compile.
            outcome: How the round ended.
            reason: Why it ended so, in one sentence.
            decided: On how many questions it decided.
            new_version: The version that the alias names now; None if the current one stays.
        """
        start_on_dev, compiled_on_dev = result.dev
        return Improvement(
            address=self.target.address,
            outcome=outcome,
            reason=reason,
            version_before=self.target.version,
            version_after=new_version or self.target.version,
            new_questions=self.split.new_questions,
            decided_questions=decided,
            trained_questions=len(self.inputs.split().train),
            promotion=result.promotion,
            score_before=start_on_dev.score,
            score_after=None if compiled_on_dev is None else compiled_on_dev.score,
            usage=result.usage,
        )


def _rejection_reason(result: CompileResult) -> str:
    """Return why the compiled program does not replace the current one."""
    _, compiled_on_dev = result.dev
    if compiled_on_dev is not None and not result.is_changed:
        return "The optimizer found no better program"
    if compiled_on_dev is not None and compiled_on_dev.broken:
        # The reason of the promotion quotes an error, which may quote a user.
        return "Too many questions failed with the new program"
    return str(result.promotion.rejection_reason)


def _refuse_optimizer(compile_config: CompileConfig, allow_user_text: bool) -> None:
    """Refuse an optimizer whose programs a round never registers, before anything is paid for.

    Such an optimizer trains weights, or it adds demos to prompts. Demos are questions and answers
    of users, so they are allowed only with `allow_user_text`.

    Raises:
        UserError: The optimizer is refused.
    """
    name = compile_config.optimizer
    if name == "finetune":
        raise UserError(
            f"--optimizer {name} trains weights, which a round does not keep; use another one,"
            " or run mempiler compile and publish"
        )
    if allow_user_text:
        return

    # It is not known what a user's own optimizer adds. Its program is checked before it is
    # registered (`_refuse_registration`).
    is_users_own = name not in OPTIMIZERS
    if is_users_own:
        return
    if name not in OPTIMIZERS_WITHOUT_DEMOS:
        allowed_names = " or ".join(OPTIMIZERS_WITHOUT_DEMOS)
        raise UserError(
            f"--optimizer {name} puts questions of users into prompts, where forgetting a user does"
            f" not reach them; use {allowed_names}, or give --allow-user-text"
        )


def _read_questions(
    inputs: RunInputs, config: ImproveConfig, folder: Path
) -> JsonlBenchmark | None:
    """Read the questions of a round from a store or a file; return None if a store has none.

    Raises:
        UserError: Neither or both are named, or the questions cannot be read.
    """
    file = inputs.config.data.file
    has_file = file is not None
    has_store = config.store is not None
    if has_file == has_store:
        raise UserError(
            "improve takes its questions from a store or a file; give one of --store and --data"
        )

    if config.store is not None:
        exported_file = folder / "questions.jsonl"
        _export_questions(config.store, exported_file, config.tenant)
        is_empty = exported_file.stat().st_size == 0
        if is_empty:
            return None
        file = str(exported_file)
    return JsonlBenchmark.load(file, **inputs.config.data.benchmark_settings)


def _export_questions(store: Store | str | Path, file: Path, tenant: str | None) -> None:
    """Write the feedback of a store as questions into a file."""
    from .feedback_questions import export_questions

    export_questions(store, file, tenant=tenant)


def _round_benchmark(benchmark: JsonlBenchmark, split: RoundSplit) -> JsonlBenchmark:
    """Return a benchmark whose train and dev questions are those of a round's split.

    All questions get the category "all", because MLflow would keep the users' own names of
    categories.
    """
    train = [example.copy(category="all") for example in split.train]
    dev = [example.copy(category="all") for example in split.dev]
    return JsonlBenchmark.from_examples(train, benchmark.metric_name, valset=dev)
