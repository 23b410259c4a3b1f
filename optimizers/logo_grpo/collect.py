"""Collect the training data of one step: rollouts of conversations, reruns of sessions, groups.

    conversation -- num_rollouts x --> rollouts ----------------> global groups
                                           |
                some sessions, each from the memory before it in one rollout
                                           |
                                           +-- local_n x --> reruns --> local groups

Everything random (conversations, sessions, rollouts to rerun, questions, tokens) follows from the
seed and the number of the step. So a step that is done again after a kill is the same step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import dspy

from ...programs.call_recorder import PredictorCall
from ...programs.program import MemoryProgram
from ...records import History
from .groups import Group, RewardedRollout, global_groups, local_groups
from .policy import ScoredRollout, count_completions
from .reward import (
    Metric,
    SessionReward,
    rollout_reward,
    sample_questions,
    score_answers,
    session_rewards,
)
from .rollout import Rollout, rerun_session, roll_out, run_parallel, truncate_history
from .settings import TrainingSettings

QuestionsAfter = Callable[[History, int], Sequence[dspy.Example]]
"""Returns the questions that can be asked after so many sessions of a training history."""


@dataclass(frozen=True)
class BatchStatistics:
    """The numbers of one step's batch; the journal has them under these names."""

    reward: float
    """The mean reward R of the rollouts."""
    score: float
    """The mean score of their answers."""
    format_failures: float
    """The share of completions that could not be read, in rollouts and reruns."""
    refused: float
    """Operations that code refused."""
    completions: float
    tokens: float
    """Tokens generated."""
    groups_global: float
    """Groups to learn from; those without variance are not in it."""
    groups_local: float
    no_variance_global: float
    """Groups that were dropped, because their members do not differ."""
    no_variance_local: float
    members: float
    """Members of all groups to learn from."""


@dataclass(frozen=True)
class Batch:
    """The groups of one step, and its numbers."""

    groups: tuple[Group, ...]
    statistics: BatchStatistics


@dataclass(frozen=True)
class ConversationRollouts:
    """The rollouts of one conversation."""

    history: History
    """The whole conversation; the rollouts end at the horizon."""
    rollouts: Sequence[ScoredRollout]


@dataclass(frozen=True)
class LocalStart:
    """A session that is rerun, and the rollout whose memory before it the reruns start from."""

    history: History
    """The whole conversation."""
    source: Rollout
    session: int
    """The index of the session."""


@dataclass(frozen=True)
class SessionReruns:
    """The reruns of one session."""

    start: LocalStart
    reruns: Sequence[ScoredRollout]


@dataclass(frozen=True)
class Collector:
    """Makes the batches of a training."""

    program: MemoryProgram
    histories: Sequence[History]
    """The training conversations."""
    questions: QuestionsAfter
    metric: Metric
    settings: TrainingSettings

    def collect(self, step: int, horizon: int, policy: dspy.BaseLM, reader: dspy.BaseLM) -> Batch:
        """Return the batch of one step, made with the adapter of the context.

        Args:
            step: The number of the step.
            horizon: How many sessions of each conversation are written.
            policy: The model that is trained, at the temperature of rollouts.
            reader: The model that answers the questions.
        """
        rng = random.Random(f"{self.settings.seed} {step} step")
        histories = self._draw_histories(rng)

        objective = self.settings.objective
        has_global_groups = objective in ("logo", "grpo")
        has_local_groups = objective in ("logo", "local")

        with dspy.context(lm=policy, trace=None, disable_history=True):
            # Local groups need the rollouts too: reruns start from the memories in them.
            conversations = self._roll_out_all(step, horizon, histories, reader)
            rerun_sessions: list[SessionReruns] = []
            if has_local_groups:
                starts = self._draw_local_starts(conversations, rng)
                rerun_sessions = self._rerun_all(step, starts, reader)

        groups: list[Group] = []
        if has_global_groups:
            groups += self._global_groups(conversations)
        if has_local_groups:
            groups += self._local_groups(rerun_sessions)
        # The statistics also count the groups that are not trained on.
        statistics = self._statistics(conversations, rerun_sessions, groups)
        varied_groups = tuple(group for group in groups if group.varies)
        return Batch(varied_groups, statistics)

    def _draw_histories(self, rng: random.Random) -> list[History]:
        """Draw the conversations of a step."""
        count = min(self.settings.histories, len(self.histories))
        places = rng.sample(range(len(self.histories)), count)
        return [self.histories[place] for place in places]

    def _roll_out_all(
        self, step: int, horizon: int, histories: Sequence[History], reader: dspy.BaseLM
    ) -> list[ConversationRollouts]:
        """Write each conversation `num_rollouts` times."""
        calls: list[Callable[[], ScoredRollout]] = []
        for history in histories:
            for number in range(self.settings.num_rollouts):
                # The name decides what is sampled: each rollout of a training has another one.
                name = f"{self.settings.seed}/{step}/{history.id}/{number}"
                calls.append(partial(self._roll_out, step, horizon, history, name, reader))

        # The results are in the order of the calls: `num_rollouts` of each conversation in a row.
        scored_rollouts = run_parallel(calls, self.settings.threads)
        parts = _split(scored_rollouts, self.settings.num_rollouts)
        return [
            ConversationRollouts(history, part)
            for history, part in zip(histories, parts, strict=True)
        ]

    def _roll_out(
        self, step: int, horizon: int, history: History, name: str, reader: dspy.BaseLM
    ) -> ScoredRollout:
        truncated = truncate_history(history, horizon)
        rollout = roll_out(self.program.method.writer, truncated, name)
        return self._score(step, history, rollout, self.settings.reward.questions, reader)

    def _draw_local_starts(
        self, conversations: Sequence[ConversationRollouts], rng: random.Random
    ) -> list[LocalStart]:
        """Draw the sessions to rerun, and for each a rollout from whose memory the reruns start.

        As in the released code, it is drawn once for each session index: the third sessions of all
        conversations are rerun, for example, or none of them.
        """
        starts: list[LocalStart] = []
        is_rerun_by_session: dict[int, bool] = {}
        for conversation in conversations:
            rollouts = conversation.rollouts
            session_count = len(rollouts[0].rollout.sessions)
            for session in range(session_count):
                # The number is drawn even if the index was decided in an earlier conversation.
                # Skipping it would change all numbers after it, and so what a seed leads to.
                is_drawn = rng.random() < self.settings.local_fraction
                if session not in is_rerun_by_session:
                    is_rerun_by_session[session] = is_drawn

                if is_rerun_by_session[session]:
                    source = rollouts[rng.randrange(len(rollouts))].rollout
                    starts.append(LocalStart(conversation.history, source, session))
        return starts

    def _rerun_all(
        self, step: int, starts: Sequence[LocalStart], reader: dspy.BaseLM
    ) -> list[SessionReruns]:
        """Write each session `local_n` times; the reruns do not depend on one another."""
        calls: list[Callable[[], ScoredRollout]] = []
        for start in starts:
            for number in range(self.settings.local_n):
                prefix = f"{self.settings.seed}/{step}/{start.history.id}"
                name = f"{prefix}/local/{start.session}/{number}"
                calls.append(partial(self._rerun, step, start, name, reader))

        scored_reruns = run_parallel(calls, self.settings.threads)
        parts = _split(scored_reruns, self.settings.local_n)
        return [SessionReruns(start, part) for start, part in zip(starts, parts, strict=True)]

    def _rerun(self, step: int, start: LocalStart, name: str, reader: dspy.BaseLM) -> ScoredRollout:
        writer = self.program.method.writer
        rerun = rerun_session(writer, start.source, start.session, name)
        limit = self.settings.reward.local_questions
        return self._score(step, start.history, rerun, limit, reader)

    def _score(
        self, step: int, history: History, rollout: Rollout, limit: int, reader: dspy.BaseLM
    ) -> ScoredRollout:
        """Ask the memory at the end of a rollout at most `limit` questions, and score the answers.

        Args:
            step: The number of the step.
            history: The whole conversation; the rollout may end earlier.
            rollout: The rollout.
            limit: How many questions are asked at most, of those that can be asked by then.
            reader: The model that answers.
        """
        sessions = len(rollout.history)
        # The name of the rollout is not part of the seed: the members of a group are compared, so
        # they are asked the same questions.
        seed = f"{self.settings.seed} {step} {history.id} {sessions} questions"
        examples = sample_questions(self.questions(history, sessions), limit, seed)
        with dspy.context(lm=reader):
            answers = score_answers(
                self.program, rollout.history, rollout.memory, examples, self.metric
            )
        return ScoredRollout(rollout, answers)

    def _global_groups(self, conversations: Sequence[ConversationRollouts]) -> list[Group]:
        """Return the global groups: each compares calls in all rollouts of one conversation."""
        # The model learns from the calls of the predictors that write memories.
        trained_predictors = self.program.method.writer.predictors_below()
        groups: list[Group] = []
        for conversation in conversations:
            rewarded_rollouts = [
                self._with_rewards(scored, self.settings.session_reward)
                for scored in conversation.rollouts
            ]
            groups += global_groups(
                conversation.history.id,
                rewarded_rollouts,
                trained_predictors,
                self.settings.reward,
            )
        return groups

    def _local_groups(self, rerun_sessions: Sequence[SessionReruns]) -> list[Group]:
        """Return the local groups: each compares calls in all reruns of one session.

        The reward of a local group is the quality of the memory right after the session.
        """
        # The model learns from the calls of the predictors that write memories.
        trained_predictors = self.program.method.writer.predictors_below()
        groups: list[Group] = []
        for session_reruns in rerun_sessions:
            # A rerun writes one session and ends. So the memory right after the session is the one
            # at the end of the rerun, for which "trajectory" gives the reward.
            rewarded_reruns = [
                self._with_rewards(scored, "trajectory") for scored in session_reruns.reruns
            ]
            start = session_reruns.start
            groups += local_groups(
                start.history.id,
                start.session,
                rewarded_reruns,
                trained_predictors,
                self.settings.reward,
            )
        return groups

    def _with_rewards(self, scored: ScoredRollout, kind: SessionReward) -> RewardedRollout:
        """Return a rollout with the rewards of the completions that wrote its memory.

        Args:
            scored: The rollout, and the scores of the answers from its memory.
            kind: How the reward of a session is computed; see `session_rewards`.
        """
        rollout = scored.rollout
        settings = self.settings.reward
        rewards_by_session = session_rewards(scored.answers, rollout, settings, kind)
        # After the last session the memory is finalized. The completions of this step belong to no
        # session, so they get the reward of the whole rollout.
        end_reward = rollout_reward(scored.answers, rollout, settings)
        return RewardedRollout(rollout, session_rewards=rewards_by_session, end_reward=end_reward)

    def _statistics(
        self,
        conversations: Sequence[ConversationRollouts],
        sessions: Sequence[SessionReruns],
        groups: Sequence[Group],
    ) -> BatchStatistics:
        rollouts: list[ScoredRollout] = []
        for conversation in conversations:
            rollouts.extend(conversation.rollouts)
        reruns: list[ScoredRollout] = []
        for session in sessions:
            reruns.extend(session.reruns)

        rewards: list[float] = []
        for scored in rollouts:
            rewards.append(rollout_reward(scored.answers, scored.rollout, self.settings.reward))

        calls: list[PredictorCall] = []
        for scored in [*rollouts, *reruns]:
            calls.extend(scored.rollout.calls)
        counts = count_completions(calls)

        varied: Counter[str] = Counter()
        unvaried: Counter[str] = Counter()
        members = 0
        for group in groups:
            if group.varies:
                varied[group.key.kind] += 1
                members += len(group.members)
            else:
                unvaried[group.key.kind] += 1

        return BatchStatistics(
            reward=sum(rewards) / len(rewards),
            score=sum(scored.answers.mean for scored in rollouts) / len(rollouts),
            format_failures=counts.format_failures,
            refused=float(counts.refused_operations),
            completions=float(counts.completions),
            tokens=float(counts.tokens),
            groups_global=float(varied["global"]),
            groups_local=float(varied["local"]),
            no_variance_global=float(unvaried["global"]),
            no_variance_local=float(unvaried["local"]),
            members=float(members),
        )


def _split(scored: Sequence[ScoredRollout], size: int) -> list[list[ScoredRollout]]:
    """Split a list into parts of `size`."""
    return [list(scored[start : start + size]) for start in range(0, len(scored), size)]
