"""Groups of completions whose rewards are compared with one another.

    global group    the n-th call of a role in session s, in each rollout of one conversation;
                    r_i is the reward of session s, or of the whole rollout
    local group     the same, in each rerun of session s from the memory M_{s-1} of one rollout;
                    r_i is the reward right after that session

A role is a writing predictor, such as the fact extractor or the memory manager. All roles share the
weights of one model, but each has its own groups.

To the training job both kinds are plain groups. It gives member i the advantage

    A_i = (r_i - mean(r)) / (std(r) + eps)

less a term for each kind of fault that costs something (`engines.local.loss`).

In all sessions but the first, the members of a global group start from different memories; local
groups are there to correct that. A group whose members do not differ teaches nothing: it is dropped
and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from ...programs.call_recorder import Completion, PredictorCall
from .reward import FLAWLESS, Faults, RewardSettings, completion_faults
from .rollout import Rollout

Kind = Literal["global", "local"]

END = "end"
"""Stands for the id of a session where calls finalize the memory, after the last session."""
SMALLEST_DIFFERENCE = 1e-9
"""Rewards that differ by no more are equal but for rounding."""


class SampledTokens(Protocol):
    """What a local engine records of a completion; see `engines.local.sampling.Sample`."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logprobs: Sequence[float]


@dataclass(frozen=True)
class Member:
    """One raw completion with its reward."""

    completion: Completion
    reward: float
    faults: Faults = FLAWLESS

    def to_training_data(self) -> dict[str, Any]:
        """Return the member as the training job reads it.

        Messages, completion and reward are DSPy's format. Faults are ours, and so are the token ids
        and log-probabilities, which only a local engine records.
        """
        data: dict[str, Any] = {
            "messages": [dict(message) for message in self.completion.messages],
            "completion": {"role": "assistant", "content": self.completion.text},
            "reward": self.reward,
            "faults": {kind: float(present) for kind, present in asdict(self.faults).items()},
        }
        tokens: SampledTokens | None = self.completion.sample
        if tokens is not None:
            data["prompt_ids"] = list(tokens.prompt_ids)
            data["completion_ids"] = list(tokens.completion_ids)
            data["logprobs"] = list(tokens.logprobs)
        return data


@dataclass(frozen=True)
class GroupKey:
    """What the members of a group have in common."""

    kind: Kind
    history: str
    """The id of the conversation."""
    session: str
    """The id of the session that the calls wrote, or `END`."""
    role: str
    """The name of the predictor that was called."""
    call: int
    """The number of the call among those of its role in the session, from 1."""
    start: int | None = None
    """In a local group the index of the session that was rerun."""


@dataclass(frozen=True)
class Group:
    """Completions that are compared with one another."""

    key: GroupKey
    members: tuple[Member, ...]
    fault_weights: Mapping[str, float] = field(default_factory=dict)
    """What each kind of fault costs; kinds that cost nothing are not in it."""

    @property
    def varies(self) -> bool:
        """Whether members differ, in their reward or in a fault that costs something."""
        rewards = [member.reward for member in self.members]
        if max(rewards) - min(rewards) > SMALLEST_DIFFERENCE:
            return True
        for kind in self.fault_weights:
            values = {getattr(member.faults, kind) for member in self.members}
            if len(values) > 1:
                return True
        return False

    def to_training_data(self, batch_id: int) -> dict[str, Any]:
        """Return the group as the training job reads it."""
        return {
            "batch_id": batch_id,
            "group": [member.to_training_data() for member in self.members],
            "fault_weights": dict(self.fault_weights),
        }


@dataclass(frozen=True)
class RewardedRollout:
    """A rollout with the rewards of its completions."""

    rollout: Rollout
    session_rewards: Sequence[float]
    """The reward of the completions of each session."""
    end_reward: float
    """The reward of the completions that finalized the memory."""


def global_groups(
    history: str,
    rollouts: Sequence[RewardedRollout],
    roles: Mapping[str, object],
    settings: RewardSettings,
) -> list[Group]:
    """Group the completions of several rollouts of one conversation, to compare their rewards.

    All rollouts write the same sessions. A group holds the completions of the same call in each of
    them, for example of the second call of the fact extractor in the third session.

    Args:
        history: The id of the conversation.
        rollouts: The rollouts of the conversation.
        roles: The predictors that are trained, by name; calls of others are left out.
        settings: The settings of rewards. Their `fault_weights` say what it costs a completion
            that it cannot be read, or that one of its operations is refused.
    """
    # No session was rerun, so there is no index of one.
    start = None
    return _build_groups("global", history, start, rollouts, roles, settings)


def local_groups(
    history: str,
    start: int,
    reruns: Sequence[RewardedRollout],
    roles: Mapping[str, object],
    settings: RewardSettings,
) -> list[Group]:
    """Group the completions of several reruns of one session, to compare their rewards.

    All reruns write this session alone, and start from the same memory. A group holds the
    completions of the same call in each of them, for example of the second call of the fact
    extractor.

    Args:
        history: The id of the conversation.
        start: The index of the session.
        reruns: The reruns of the session.
        roles: The predictors that are trained, by name; calls of others are left out.
        settings: The settings of rewards. Their `fault_weights` say what it costs a completion
            that it cannot be read, or that one of its operations is refused.
    """
    return _build_groups("local", history, start, reruns, roles, settings)


def _build_groups(
    kind: Kind,
    history: str,
    start: int | None,
    rollouts: Sequence[RewardedRollout],
    roles: Mapping[str, object],
    settings: RewardSettings,
) -> list[Group]:
    """Return the groups of the calls of some rollouts, in a fixed order.

    A group has the n-th call of a role in a session, from each rollout that has such a call. A
    group with a single completion has nothing to compare it with, and is dropped.

    Args:
        kind: The kind of the groups.
        history: The id of the conversation.
        start: In local groups the index of the session that was rerun.
        rollouts: What is compared: rollouts of the conversation, or reruns of one session.
        roles: The predictors that are trained, by name; calls of others are left out.
        settings: The settings of rewards, with the weights of faults.
    """
    members_by_key: dict[GroupKey, list[Member]] = {}
    for rewarded in rollouts:
        for session_calls in _calls_by_session(rewarded):
            for numbered_call in _number_calls(session_calls.calls, roles):
                key = GroupKey(
                    kind=kind,
                    history=history,
                    session=session_calls.session,
                    role=numbered_call.role,
                    call=numbered_call.number,
                    start=start,
                )
                members = members_by_key.setdefault(key, [])
                members.extend(_members_of_call(numbered_call.call, session_calls.reward))

    groups: list[Group] = []
    for key in sorted(members_by_key, key=_sort_key):
        members = members_by_key[key]
        if len(members) > 1:
            groups.append(Group(key, tuple(members), settings.fault_weights))
    return groups


@dataclass(frozen=True)
class _SessionCalls:
    """The calls that wrote one session of a rollout; all of them get the same reward."""

    session: str
    """The id of the session, or `END` for the calls that finalized the memory."""
    calls: Sequence[PredictorCall]
    reward: float


def _calls_by_session(rewarded: RewardedRollout) -> list[_SessionCalls]:
    """Return the calls of each session of a rollout, and then those at its end."""
    rollout = rewarded.rollout
    calls_by_session: list[_SessionCalls] = []
    for session, reward in zip(rollout.sessions, rewarded.session_rewards, strict=True):
        calls_by_session.append(_SessionCalls(session.item.id, session.calls, reward))
    calls_by_session.append(_SessionCalls(END, rollout.finalize_calls, rewarded.end_reward))
    return calls_by_session


@dataclass(frozen=True)
class _NumberedCall:
    """A call of a session with its role and its number among the calls of that role, from 1."""

    role: str
    number: int
    call: PredictorCall


def _number_calls(
    calls: Sequence[PredictorCall], roles: Mapping[str, object]
) -> list[_NumberedCall]:
    """Count the calls of each role in a session; calls of other predictors are left out."""
    # A call has the predictor itself, and no name of its role.
    role_by_predictor_id = {id(predictor): role for role, predictor in roles.items()}
    call_counts: Counter[str] = Counter()
    numbered_calls: list[_NumberedCall] = []
    for call in calls:
        role = role_by_predictor_id.get(id(call.predictor))
        if role is not None:
            call_counts[role] += 1
            numbered_calls.append(_NumberedCall(role, call_counts[role], call))
    return numbered_calls


def _members_of_call(call: PredictorCall, reward: float) -> list[Member]:
    """Return the completions of a call, including those that could not be read."""
    members: list[Member] = []
    last = len(call.completions) - 1
    for number, completion in enumerate(call.completions):
        faults = completion_faults(call, is_last=number == last)
        members.append(Member(completion, reward, faults))
    return members


def _sort_key(key: GroupKey) -> tuple[str, str, str]:
    # The order decides which rows share a mini-batch, so it must not depend on timing.
    return key.session, key.role, str(key.call)
