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
        """Train the current stage and all stages after it, or until the training collapses.

        Args:
            horizons: For each stage, how many sessions of a conversation are written.
        """
        stage_count = len(horizons)
        # A training that is resumed may be in the middle of a stage.
        for stage in range(self.progress.stage, stage_count):
            while not self._stage_has_ended(stage_count):
                self._train_step(horizons[stage])
                if self.progress.stopped is not None:
                    # The training has collapsed. Its weights are not saved.
                    return
                if self.progress.stage_steps % self.settings.validate_every == 0:
                    self._save_and_validate()

            # Does nothing if the last step was validated already.
            self._save_and_validate()
            if stage + 1 < stage_count:
                self._begin_next_stage()

    def _stage_has_ended(self, stage_count: int) -> bool:
        """Return whether the current stage has used its steps or its tokens.

        Args:
            stage_count: How many stages there are; they share the budget of tokens.
        """
        return self.settings.curriculum.stage_has_ended(
            stage=self.progress.stage,
            stage_count=stage_count,
            steps=self.progress.stage_steps,
            generated_tokens=self.progress.tokens,
        )

    def _train_step(self, horizon: int) -> None:
        """Collect the groups of one step, update the weights, and note the numbers.

        Afterwards `progress.stopped` says why the training ends early, if it does.
        """
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

        Their share is a mean over the last `window` steps. The limit is `max_format_failures`. For
        a model that begins badly it is higher: twice the share of the first step.
        """
        shares = [row["format_failures"] for row in progress.rows if "format_failures" in row]
        recent_shares = shares[-self.settings.window :]
        if len(recent_shares) < self.settings.window:
            return None

        mean_share = sum(recent_shares) / len(recent_shares)
        limit = max(self.settings.max_format_failures, 2 * shares[0])
        if mean_share <= limit:
            return None
        return (
            f"format collapse: {mean_share:.0%} of the completions of the last "
            f"{len(recent_shares)} steps could not be read"
        )

    def _save_and_validate(self) -> None:
        """Save a checkpoint of the current step, validate it, and write the journal.

        A step that has a checkpoint already is skipped.
        """
        progress = self.progress
        if progress.saved_step == progress.step:
            return

        checkpoint = self.trainer.save_checkpoint(f"step-{progress.step}")
        progress = replace(
            progress,
            checkpoint=checkpoint,
            saved_step=progress.step,
            # The first checkpoint of a training is the one that its first stage starts from.
            stage_start=progress.stage_start or checkpoint,
        )

        # Without validation questions no checkpoint is the best, and the last one is used.
        if self.validation_examples:
            row = self._validate()
            self.on_row(row)
            score = row["validation"]
            best = progress.best
            # With few questions, checkpoints often have equal scores. Then the later one counts as
            # the best, because it was trained for longer.
            if best is None or score >= best.score:
                best = Best(progress.step, score, checkpoint)
            progress = replace(progress.with_row(row), best=best)

        self._write_journal(progress)

    def _validate(self) -> dict[str, float]:
        """Score the current weights on the validation questions, and return a row for the journal.

        Each memory is written once greedily, and `settings.samples` times by sampling, as in the
        training. The mean score of the sampled memories decides which checkpoint is the best.
        """
        greedy_decoding = Decoding("validate", temperature=0.0, samples=1)
        greedy = self._score_policy(greedy_decoding)

        sampled_decoding = Decoding(
            "validate", temperature=self.settings.temperature, samples=self.settings.samples
        )
        sampled = self._score_policy(sampled_decoding)
        return {
            "step": self.progress.step,
            "validation": sampled.score,
            "validation_greedy": greedy.score,
            "validation_failures": sampled.counts.format_failures,
        }

    def _score_policy(self, decoding: Decoding) -> PolicyScore:
        """Score the current weights on the validation questions."""
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
        """Begin the next stage from the best checkpoint of the current one.

        Without validation questions there is no best one, and it begins from the last.
        """
        best = self.progress.best
        # There is a last checkpoint: `run` saves one before the first stage.
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
        """Give the model the weights that the training keeps.

        These are the best of the last stage. If none of them was validated, they are the last ones;
        the model has these already, unless the training collapsed.
        """
        progress = self.progress
        if progress.best is not None:
            self.trainer.load_checkpoint(progress.best.checkpoint)
        elif progress.stopped is not None and progress.checkpoint is not None:
            # The last checkpoint is from before the collapse. At the latest, it is the one that the
            # stage began from.
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
