"""Groups of completions that are compared with one another.

    global   (history, session, role, n): the n-th call of a role in a session, across the rollouts of one history;
             rewarded by the questions about that session at the end, or by the whole trajectory
    local    the same, across reruns of one session from one memory; rewarded right after that session

Both are plain groups to the trainer, whose advantages are (r - mean) / std within each, less a term for each kind of
fault, normalised in the same way. A group whose members do not differ is dropped and counted. In a global group the
memories of the members differ from the second session on; local groups correct that bias.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ...programs.call_recorder import Completion, PredictorCall
from .reward import FLAWLESS, Faults, RewardSettings, faults_of
from .rollout import Rollout

Kind = Literal["global", "local"]
Roles = dict[int, str]
"""Name of each writing predictor, by its id."""

END = "end"
"""Marks the end of the history, when methods settle."""


@dataclass(frozen=True)
class Member:
    """One raw completion with its reward."""

    completion: Completion
    reward: float
    faults: Faults = FLAWLESS

    def data(self) -> dict[str, Any]:
        """Return what the trainer gets: the fields of DSPy's format, the faults, and what the engine recorded."""
        data: dict[str, Any] = {
            "messages": [dict(message) for message in self.completion.messages],
            "completion": {"role": "assistant", "content": self.completion.text},
            "reward": self.reward,
            "faults": {name: float(is_present) for name, is_present in asdict(self.faults).items()},
        }
        sample = self.completion.sample
        if sample is not None:
            data |= {name: list(getattr(sample, name)) for name in ("prompt_ids", "completion_ids", "logprobs")}
        return data


@dataclass(frozen=True)
class Group:
    """Completions that are compared with one another."""

    key: tuple[Any, ...]
    kind: Kind
    members: tuple[Member, ...]
    fault_weights: Mapping[str, float] = field(default_factory=dict)
    """What each kind of fault costs; kinds that cost nothing are not in it."""

    @property
    def varies(self) -> bool:
        """Whether some member is better than another: by its reward, or by a fault that costs something."""
        rewards = [member.reward for member in self.members]
        if max(rewards) - min(rewards) > 1e-9:
            return True
        return any(len({getattr(member.faults, name) for member in self.members}) > 1 for name in self.fault_weights)

    def data(self, batch_id: int) -> dict[str, Any]:
        """Return what the trainer gets."""
        return {
            "batch_id": batch_id,
            "group": [member.data() for member in self.members],
            "fault_weights": dict(self.fault_weights),
        }


def grouped(
    kind: Kind,
    key: tuple[Any, ...],
    rollouts: Sequence[Rollout],
    rewards: Sequence[dict[str, float]],
    roles: Roles,
    settings: RewardSettings,
) -> list[Group]:
    """Groups the calls of rollouts on the same sessions: by session, role and number of the call, two members or more.

    Args:
        kind: Global for whole trajectories, local for reruns of one session.
        key: What the groups' keys begin with.
        rollouts: The rollouts to compare.
        rewards: Per rollout its reward for each session, by the session's id, and for `END`.
        roles: Which predictors are trained; calls of others are left out.
        settings: What faults cost.
    """
    members: dict[tuple[Any, ...], list[Member]] = {}
    for rollout, reward in zip(rollouts, rewards, strict=True):
        for where, calls in [*((run.item.id, run.calls) for run in rollout.sessions), (END, rollout.settle_calls)]:
            counts: Counter[str] = Counter()
            for call in calls:
                role = roles.get(id(call.predictor))
                if role is None:
                    continue
                counts[role] += 1
                n = counts[role]
                members.setdefault((*key, where, role, n), []).extend(_members(call, reward[where]))
    weights = settings.fault_weights
    found = [Group(key, kind, tuple(each), weights) for key, each in members.items() if len(each) > 1]
    return sorted(found, key=lambda group: tuple(map(str, group.key)))


def _members(call: PredictorCall, reward: float) -> list[Member]:
    last = len(call.completions) - 1
    return [Member(completion, reward, faults_of(call, n == last)) for n, completion in enumerate(call.completions)]
