"""Collects the training data of one step: trajectories of conversations and reruns of sessions, in groups.

    history ── num_rollouts x ──> trajectories ──────────────────────────────> global groups
                                   └─ per session, by chance: one snapshot ── local_n x ──> local groups

Everything random (conversations, sessions, snapshots, questions, tokens) follows from the seed and the number of the
step: a step that is done again after a kill is the same step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from ...programs.program import MemoryProgram
from ...records import History
from .groups import END, Group, Roles, grouped
from .policy import CompletionStats
from .reward import Metric, QuestionScores, SessionReward, answer, chosen, reward, session_rewards
from .rollout import Rollout, rerun, roll_out, run_parallel, truncate_history
from .settings import TrainingSettings

QuestionsAfter = Callable[[History, int], Sequence[dspy.Example]]
"""The questions that can be asked after so many sessions of a training history."""


@dataclass(frozen=True)
class Batch:
    """One step's groups and what they were made from."""

    groups: tuple[Group, ...]
    numbers: dict[str, float]
    """Mean reward, score, format failures, counts of completions, tokens and groups."""


@dataclass(frozen=True)
class ScoredRollout:
    """A rollout with what its memory answered."""

    rollout: Rollout
    question_scores: QuestionScores


@dataclass(frozen=True)
class Collector:
    """Makes the batches of a training."""

    program: MemoryProgram
    histories: Sequence[History]
    questions: QuestionsAfter
    metric: Metric
    settings: TrainingSettings

    def collect(self, step: int, horizon: int, policy: Any, reader: Any) -> Batch:
        """One step's batch of trajectories of `horizon` sessions, under the adapter of the context.

        The policy is the model that is trained, at sampling temperature; the reader answers.
        """
        rng = random.Random(f"{self.settings.seed} {step} step")
        numbers = rng.sample(range(len(self.histories)), min(self.settings.histories, len(self.histories)))
        drawn = [self.histories[n] for n in numbers]
        with dspy.context(lm=policy, trace=None, disable_history=True):
            taken = self._trajectories(step, horizon, drawn, reader)
            reruns = self._reruns(step, taken, rng, reader) if self.settings.objective != "grpo" else {}
        groups = self._groups(taken, reruns)
        kept = [group for group in groups if group.varies]
        everything = [each for many in (*taken.values(), *reruns.values()) for each in many]
        return Batch(tuple(kept), self._numbers(taken, everything, groups, kept))

    def _trajectories(
        self, step: int, horizon: int, drawn: Sequence[History], reader: Any
    ) -> dict[History, list[ScoredRollout]]:
        s = self.settings

        def one(whole: History, n: int) -> ScoredRollout:
            rollout = roll_out(
                self.program.method.writer, truncate_history(whole, horizon), f"{s.seed}/{step}/{whole.id}/{n}"
            )
            return self._answered(rollout, whole, s.reward.questions, step, reader)

        work = [lambda whole=whole, n=n: one(whole, n) for whole in drawn for n in range(s.num_rollouts)]
        found = run_parallel(work, s.threads)
        return {whole: found[n * s.num_rollouts : (n + 1) * s.num_rollouts] for n, whole in enumerate(drawn)}

    def _reruns(
        self, step: int, taken: dict[History, list[ScoredRollout]], rng: random.Random, reader: Any
    ) -> dict[tuple[str, int], list[ScoredRollout]]:
        """Reruns by history and session; they do not depend on one another."""
        s = self.settings

        def one(whole: History, source: Rollout, t: int, n: int) -> ScoredRollout:
            name = f"{s.seed}/{step}/{whole.id}/local/{t}/{n}"
            again = rerun(self.program.method.writer, source, t, name)
            return self._answered(again, whole, s.reward.local_questions, step, reader)

        keys, work = [], []
        coins: dict[int, bool] = {}
        for whole, members in taken.items():
            for t in range(len(members[0].rollout.sessions)):
                # One coin per session for all histories: the first one's.
                coin = rng.random() < s.local_fraction
                if coins.setdefault(t, coin):
                    source = members[rng.randrange(len(members))].rollout
                    keys.append((whole.id, t))
                    work += [lambda w=whole, source=source, t=t, n=n: one(w, source, t, n) for n in range(s.local_n)]
        found = run_parallel(work, s.threads)
        return {key: found[n * s.local_n : (n + 1) * s.local_n] for n, key in enumerate(keys)}

    def _answered(self, rollout: Rollout, whole: History, most: int, step: int, reader: Any) -> ScoredRollout:
        """Asks a rollout's memory what can be asked by then: the same questions for all members of a group."""
        sessions = len(rollout.history)
        asked = chosen(
            self.questions(whole, sessions), most, f"{self.settings.seed} {step} {whole.id} {sessions} questions"
        )
        with dspy.context(lm=reader):
            return ScoredRollout(rollout, answer(self.program, rollout.history, rollout.memory, asked, self.metric))

    def _groups(
        self, taken: dict[History, list[ScoredRollout]], reruns: dict[tuple[str, int], list[ScoredRollout]]
    ) -> list[Group]:
        s, groups = self.settings, []
        roles: Roles = {id(each): name for name, each in self.program.method.writer.predictors_below().items()}
        if s.objective != "local":
            for whole, members in taken.items():
                rewards = [self._session_rewards(each, s.session_reward) for each in members]
                rollouts = [each.rollout for each in members]
                groups += grouped("global", (whole.id,), rollouts, rewards, roles, s.reward)
        for key, members in reruns.items():
            rewards = [self._session_rewards(each, "trajectory") for each in members]
            rollouts = [each.rollout for each in members]
            groups += grouped("local", key, rollouts, rewards, roles, s.reward)
        return groups

    def _session_rewards(self, taken: ScoredRollout, kind: SessionReward) -> dict[str, float]:
        rollout, settings = taken.rollout, self.settings.reward
        rewards = session_rewards(taken.question_scores, rollout, settings, kind)
        named = {run.item.id: reward for run, reward in zip(rollout.sessions, rewards, strict=True)}
        return {END: reward(taken.question_scores, rollout, settings), **named}

    def _numbers(
        self,
        taken: dict[History, list[ScoredRollout]],
        everything: Sequence[ScoredRollout],
        groups: list[Group],
        kept: list[Group],
    ) -> dict[str, float]:
        trajectories = [each for members in taken.values() for each in members]
        counts = CompletionStats.of([call for each in everything for call in each.rollout.calls])
        rewards = [reward(each.question_scores, each.rollout, self.settings.reward) for each in trajectories]
        made, left = Counter(group.kind for group in groups), Counter(group.kind for group in kept)
        return {
            "reward": sum(rewards) / len(rewards),
            "score": sum(each.question_scores.mean for each in trajectories) / len(trajectories),
            "format_failures": counts.format_failures,
            "refused": float(counts.refused),
            "completions": float(counts.completions),
            "tokens": float(counts.tokens),
            "groups_global": float(left["global"]),
            "groups_local": float(left["local"]),
            "no_variance_global": float(made["global"] - left["global"]),
            "no_variance_local": float(made["local"] - left["local"]),
            "members": float(sum(len(group.members) for group in kept)),
        }
