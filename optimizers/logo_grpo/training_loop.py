"""The loop of a LoGo-GRPO training, over stages and steps.

    stage, with a horizon of h sessions
        step: rollouts, reruns and groups (`Collector`), then one update (`Trainer`)
        every `validate_every` steps: checkpoint, score on whole validation histories, journal
    next stage: from the best checkpoint of this one, with a new optimizer, and with these weights
        as reference of the KL term

Each stage chooses among its own checkpoints, and the best of the last stage is kept. If all stages
competed, a model of short conversations that scores as well on the validation users would be
returned, whatever the later stages learned. The start counts as a checkpoint of the first stage.

The best checkpoint is the one with the highest score of sampled answers, because the sampling
policy is what is trained. The score is a mean over `samples` tries of each validation history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import dspy

from ...programs.program import MemoryProgram
from .collect import Collector
from .journal import Best, Journal, Progress, Row
from .policy import Decoding, PolicyScore, score_policy
from .settings import TrainingSettings
from .trainer import Trainer

OnRow = Callable[[Row], None]
"""Called with the numbers of every step, and with the scores of every validation."""


@dataclass
class TrainingLoop:
    """One training: what it needs, and how far it has come."""

    program: MemoryProgram
    lm: dspy.LM
    """The model that is trained."""
    reader: dspy.BaseLM | None
    """The model that answers questions; the trained one at temperature 0 if None."""
    collector: Collector
    trainer: Trainer
    journal: Journal
    validation_examples: Sequence[dspy.Example]
    """The questions that choose checkpoints; without any, the last checkpoint is kept."""
    settings: TrainingSettings
    on_row: OnRow
    progress: Progress
    """The state so far; at first what the journal has."""

    def run(self) -> None:
        """Train to the end of the last stage, and leave the model with the weights to keep."""
        longest = max(len(history) for history in self.collector.histories)
        horizons = self.settings.curriculum.stages(longest)

        is_new = self.progress.stage_start is None
        if is_new:
            # The start is the first checkpoint: it competes with the later ones.
            self._save_and_validate()
        else:
            self._restore()

        if not self.progress.done:
            self._train_stages(horizons)
            self._write_journal(replace(self.progress, done=True))

        self._load_kept_checkpoint()

    def _train_stages(self, horizons: Sequence[int]) -> None:
        """Train from the stage of now to the last, or until the training stops early.

        Args:
            horizons: For each stage, how many sessions of a conversation are written.
        """
        for stage in range(self.progress.stage, len(horizons)):
            while not self._stage_has_ended(len(horizons)):
                self._train_step(horizons[stage])
                is_due = self.progress.stage_steps % self.settings.validate_every == 0
                if is_due and not self.progress.stopped:
                    self._save_and_validate()

            # A training that has collapsed keeps what it had before.
            if self.progress.stopped:
                return
            self._save_and_validate()
            if stage + 1 < len(horizons):
                self._begin_next_stage()

    def _stage_has_ended(self, stage_count: int) -> bool:
        if self.progress.stopped:
            return True
        return self.settings.curriculum.stage_has_ended(
            self.progress.stage, stage_count, self.progress.stage_steps, self.progress.tokens
        )

    def _train_step(self, horizon: int) -> None:
        """Collect the groups of one step, update the weights, and note the numbers."""
        started = time.perf_counter()
        step = self.progress.step + 1

        policy = uncached_lm(self.lm, temperature=self.settings.temperature)
        reader = self.reader if self.reader is not None else uncached_lm(self.lm)
        batch = self.collector.collect(step, horizon, policy, reader)
        losses = self.trainer.train(batch.groups)

        row: dict[str, float] = {"step": step, "stage": self.progress.stage, "horizon": horizon}
        row.update(asdict(batch.statistics))
        for name, value in losses.items():
            row[f"train_{name}"] = value
        row["seconds"] = time.perf_counter() - started
        self.on_row(row)

        progress = replace(
            self.progress.with_row(row),
            step=step,
            stage_steps=self.progress.stage_steps + 1,
            tokens=self.progress.tokens + int(batch.statistics.tokens),
        )
        self.progress = replace(progress, stopped=self._collapse_message(progress))

    def _collapse_message(self, progress: Progress) -> str | None:
        """Return why the training stops, if too many completions cannot be read any more.

        The limit is `max_format_failures`, and twice the share of the first step for a model that
        begins badly. The share is a mean over the last `window` steps.
        """
        shares = [row["format_failures"] for row in progress.rows if "format_failures" in row]
        recent_shares = shares[-self.settings.window :]
        if len(recent_shares) < self.settings.window:
            return None

        mean_share = sum(recent_shares) / len(recent_shares)
        if mean_share <= max(self.settings.max_format_failures, 2 * shares[0]):
            return None
        return (
            f"format collapse: {mean_share:.0%} of the completions of the last "
            f"{len(recent_shares)} steps could not be read"
        )

    def _save_and_validate(self) -> None:
        """Save a checkpoint, score it, and write the journal; nothing if this step has one."""
        progress = self.progress
        if progress.saved_step == progress.step:
            return

        checkpoint = self.trainer.save_checkpoint(f"step-{progress.step}")
        progress = replace(
            progress,
            checkpoint=checkpoint,
            saved_step=progress.step,
            # The very first checkpoint begins the first stage.
            stage_start=progress.stage_start or checkpoint,
        )
        # Without validation questions there is no best: the last checkpoint is kept.
        if self.validation_examples:
            row = self._validate()
            self.on_row(row)
            best = progress.best
            # Of equals the later one: with few questions scores tie, and sampling gets sharper.
            if best is None or row["validation"] >= best.score:
                best = Best(progress.step, row["validation"], checkpoint)
            progress = replace(progress.with_row(row), best=best)
        self._write_journal(progress)

    def _validate(self) -> dict[str, float]:
        """Score the weights of now on the validation questions, greedily and by sampling."""
        greedy = self._score_policy(Decoding("validate"))
        sampled = self._score_policy(
            Decoding("validate", self.settings.temperature, self.settings.samples)
        )
        return {
            "step": self.progress.step,
            "validation": sampled.score,
            "validation_greedy": greedy.score,
            "validation_failures": sampled.counts.format_failures,
        }

    def _score_policy(self, decoding: Decoding) -> PolicyScore:
        """Score the weights of now on the validation questions."""
        return score_policy(
            self.program,
            self.validation_examples,
            self.collector.metric,
            lm=uncached_lm(self.lm),
            decoding=decoding,
            reader=self.reader,
            threads=self.settings.threads,
        )

    def _begin_next_stage(self) -> None:
        """Go back to the best checkpoint of the stage, and begin the next one from it."""
        best = self.progress.best
        start = best.checkpoint if best is not None else str(self.progress.checkpoint)
        self.trainer.begin_stage(start)
        next_stage = replace(
            self.progress,
            stage=self.progress.stage + 1,
            stage_steps=0,
            checkpoint=start,
            stage_start=start,
            best=None,
        )
        self._write_journal(next_stage)

    def _restore(self) -> None:
        """Put the weights back to where a killed or finished training was."""
        progress = self.progress
        # From its start, because the stage's reference of the KL term has those weights.
        self.trainer.begin_stage(str(progress.stage_start))
        if progress.checkpoint is not None and progress.checkpoint != progress.stage_start:
            self.trainer.load_checkpoint(progress.checkpoint)

    def _load_kept_checkpoint(self) -> None:
        """Give the model the weights that the training keeps."""
        progress = self.progress
        if progress.best is not None:
            self.trainer.load_checkpoint(progress.best.checkpoint)
        elif self.validation_examples and progress.checkpoint is not None:
            # The last stage stopped before its first validation: back to where it began.
            self.trainer.load_checkpoint(progress.checkpoint)

    def _write_journal(self, progress: Progress) -> None:
        """Make this the state to resume from, and delete checkpoints that it no longer names."""
        self.journal.write(progress)
        unnamed_checkpoints = self.progress.checkpoints() - progress.checkpoints()
        for checkpoint in unnamed_checkpoints:
            self.trainer.delete_checkpoint(checkpoint)
        self.progress = progress


def uncached_lm(lm: dspy.LM, temperature: float = 0.0) -> dspy.BaseLM:
    """Return a copy of a language model that bypasses caches and the answers of earlier runs."""
    if hasattr(lm, "answers"):
        return lm.copy(temperature=temperature, cache=False, answers=None)
    return lm.copy(temperature=temperature, cache=False)
