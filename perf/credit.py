"""Which reward gives single memory operations the right credit: the trajectory's, the session's, or a local group's.

Fresh users of memory-env are written by the start policy (`local:tiny`, sampled). At one turn of each the manager is
asked a few more times; each answer is an operation to be judged. What it is truly worth is measured by continuing:

    A*(a) = Q(a) - sum of p(b) Q(b)        Q: mean final reward of continuations after an operation, p: how often the
                                           policy chose it in draws of their own

Decisive is what is certain and matters: |A*| > 2 standard errors and > .01. Against the signs of A* stand

    trajectory   (R - mean) / std among 16 whole trajectories of the user, as in plain GRPO
    session      the same with each trajectory's score on the questions about that session
    local n      the same among n reruns of that session from one memory, rewarded right after it
    call n       the same where only the one call is sampled again, with the facts it was given; training has no such
                 groups, it is there to show what the session's other calls add in noise

Draws of the truth and of the estimators have nothing in common: neither actions nor continuations. All judged
operations of one user share trajectories, so intervals resample users. The local reruns include the extraction and the
session's other operation, as in training.

The statement under test: local groups, as large as training makes them, give the wrong sign at most half as often as
the trajectory reward does, by the upper end of the 95 % interval of the ratio, on at least 200 decisive operations.

Usage:
    $ python perf/credit.py            # some ten minutes of one free core, most of it the truth
    $ python perf/credit.py --quick    # a minute: fewer users, no verdict

Limits: one made-up world and one start policy. Answers are looked up among all entries of a memory, which is what the
search would have found: it misses none of these small memories.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from credit_rollouts import Path, Policy, turns_of
from mempiler.data.synthesis.memory_env import Ask, Conversation
from mempiler.data.text_metrics import exact_match
from mempiler.optimizers.logo_grpo.reward import compression_excess, memory_words, words
from mempiler.programs.memory_r2.memory import FactMemory
from mempiler.programs.tasks.lookup import lookup

TURNS, GROUP, DRAWS, CONTINUATIONS, JUDGED = 16, 16, 24, 24, 4
"""Turns of a user, members of a global group, draws of p, continuations per operation, judged operations a user."""
LOCAL = (4, 8)
TRAINED = 4
"""Members of a local group where nothing else is said: `local_n` of LoGoGRPO, the released code's `inner_n`."""
ENOUGH = 200
"""Decisive operations below which nothing is said."""
LAMBDA, THRESHOLD = 0.3, 0.7
WORLD = 5_000_000
"""Added to the seed: neither the benchmark's users nor those of the warm-up."""


@dataclass
class Judged:
    """One operation: its true advantage and what the estimators say."""

    user: str
    truth: float
    error: float
    said: dict[str, float]

    @property
    def decisive(self) -> bool:
        return abs(self.truth) > max(2 * self.error, 0.01)


def judge(policy: Policy, talks: Sequence[Conversation], rng: random.Random, per: int) -> list[Judged]:
    """Judges some operations of each user, whose sessions have `per` turns."""
    policy.learn(talks)
    end = len(turns_of(talks[0]))
    before = [Path(talk, FactMemory(), 0, rng.randrange(end), _rng(rng)) for talk in talks]
    policy.run(before)
    states = []
    for path in before:
        facts = rng.choice(policy.pools[path.talk.history.id, path.stop])
        if facts:
            states.append((path, facts, *policy.prompt(path.memory, facts)))
    drawn = policy.ask([s[2] for s in states for _ in range(DRAWS)])
    acted = policy.ask([s[2] for s in states for _ in range(JUDGED)])
    found = []
    truths = _truths(policy, states, drawn, acted, rng)
    rivals = [Path(s[0].talk, FactMemory(), 0, end, _rng(rng)) for s in states for _ in range(GROUP - 1)]
    owned = [_from(s, acted[i * JUDGED + j], end, rng) for i, s in enumerate(states) for j in range(JUDGED)]
    starts = [s[0].turn - s[0].turn % per for s in states]
    reruns = [
        Path(s[0].talk, s[0].at.get(at, s[0].memory), at, at + per, _rng(rng))
        for s, at in zip(states, starts, strict=True)
        for _ in range(JUDGED * (max(LOCAL) - 1))
    ]
    ended = [_from(s, acted[i * JUDGED + j], starts[i] + per, rng) for i, s in enumerate(states) for j in range(JUDGED)]
    again = policy.ask([s[2] for s in states for _ in range(JUDGED * (max(LOCAL) - 1))])
    width = max(LOCAL) - 1
    retold = [
        _from(states[n // (JUDGED * width)], text, starts[n // (JUDGED * width)] + per, rng)
        for n, text in enumerate(again)
    ]
    policy.run([*rivals, *owned, *reruns, *ended, *retold])
    for i, state in enumerate(states):
        session, talk = starts[i] // per + 1, state[0].talk
        group = rivals[i * (GROUP - 1) : (i + 1) * (GROUP - 1)]
        for j in range(JUDGED):
            k = i * JUDGED + j
            own, local = owned[k], reruns[k * width : (k + 1) * width]
            said = {
                "trajectory": _advantage(_final(own), [_final(path) for path in group]),
                "session": _advantage(_about(own, session), [_about(path, session) for path in group]),
            }
            now = [_reward(talk, path.memory, session) for path in (ended[k], *local)]
            said |= {f"local {n}": _advantage(now[0], now[1:n]) for n in LOCAL}
            single = [_reward(talk, path.memory, session) for path in retold[k * width : (k + 1) * width]]
            said |= {f"call {n}": _advantage(now[0], single[: n - 1]) for n in LOCAL}
            found.append(Judged(talk.history.id, *truths[k], said))
    return found


def _truths(
    policy: Policy, states: Sequence[Any], drawn: Sequence[str], acted: Sequence[str], rng: random.Random
) -> list[tuple[float, float]]:
    """A* and its standard error for every judged operation; operations with one effect count as one."""
    end, paths, plans = len(turns_of(states[0][0].talk)), [], []
    for i, state in enumerate(states):
        effects = [_effect(policy, state, text) for text in drawn[i * DRAWS : (i + 1) * DRAWS]]
        mine = [_effect(policy, state, text) for text in acted[i * JUDGED : (i + 1) * JUDGED]]
        groups = {}
        for key, memory in dict([*effects, *mine]).items():
            groups[key] = [Path(state[0].talk, memory, state[0].turn + 1, end, _rng(rng)) for _ in range(CONTINUATIONS)]
            paths += groups[key]
        plans.append((Counter(key for key, _ in effects), [key for key, _ in mine], groups))
    policy.run(paths)
    found = []
    for counts, mine, groups in plans:
        values = {key: [_final(path) for path in each] for key, each in groups.items()}
        mean = {key: float(np.mean(each)) for key, each in values.items()}
        var = {key: float(np.var(each, ddof=1)) / len(each) for key, each in values.items()}
        share = {key: counts[key] / DRAWS for key in values}
        base = sum(share[key] * mean[key] for key in values)
        spread = sum(share[key] * (mean[key] - base) ** 2 for key in values) / DRAWS
        for key in mine:
            noise = sum(((key == other) - share[other]) ** 2 * var[other] for other in values)
            found.append((mean[key] - base, float(np.sqrt(noise + spread))))
    return found


def _effect(policy: Policy, state: Any, text: str) -> tuple[str, FactMemory]:
    memory = policy.apply(state[0].memory, state[1], state[3], text)
    return json.dumps([(fact.id, fact.content) for fact in memory.facts]), memory


def _from(state: Any, answer: str, stop: int, rng: random.Random) -> Path:
    path = state[0]
    return Path(path.talk, path.memory, path.turn, stop, _rng(rng), first=answer, facts=state[1])


def _rng(rng: random.Random) -> random.Random:
    return random.Random(rng.getrandbits(64))


def _final(path: Path) -> float:
    return _reward(path.talk, path.memory)


def _about(path: Path, session: int) -> float:
    """Score on the questions about a session, 0 without any, minus the compression of the end."""
    return _reward(path.talk, path.memory, None, f"D{session}:")


def _reward(talk: Conversation, memory: FactMemory, after: int | None = None, about: str = "") -> float:
    hits = [entry.hit(0.0) for entry in memory.entries()]
    asks = [ask for ask in talk.questions(after) if any(turn.startswith(about) for turn in ask.evidence)]
    right = [_right(ask, hits) for ask in asks]
    said = sum(words(turn.text) for item in talk.history.items[:after] for turn in item.turns)
    return float(np.mean(right or [0.0])) - LAMBDA * compression_excess(memory_words(memory), said, THRESHOLD)


def _right(ask: Ask, hits: Sequence[Any]) -> float:
    return exact_match(lookup(hits, ask.question), ask.answer)


def _advantage(own: float, others: Sequence[float]) -> float:
    group = np.array([own, *others])
    return float((own - group.mean()) / (group.std(ddof=1) + 1e-6)) if np.ptp(group) > 1e-9 else 0.0


def wrong_rates(judged: Sequence[Judged], seed: int = 0, draws: int = 2000) -> dict[str, dict[str, Any]]:
    """Right, wrong and zero signs of each estimator on decisive operations, and the ratio to `trajectory`.

    Intervals are of 95 %, by resampling users.
    """
    users = defaultdict(list)
    for each in judged:
        if each.decisive:
            users[each.user].append(each)
    names, groups = list(judged[0].said), list(users.values())
    wrong = np.array([[sum(e.said[n] * e.truth < 0 for e in group) for n in names] for group in groups], float)
    zero = np.array([[sum(e.said[n] == 0 for e in group) for n in names] for group in groups], float)
    count = np.array([len(group) for group in groups], float)
    picks = np.random.default_rng(seed).integers(0, len(groups), (draws, len(groups)))
    rates = wrong[picks].sum(1) / count[picks].sum(1)[:, None]
    first = names.index("trajectory")
    ratios = rates / np.maximum(rates[:, [first]], 1e-9)
    table = {}
    for n, name in enumerate(names):
        table[name] = {
            "wrong": wrong[:, n].sum() / count.sum(),
            "interval": np.percentile(rates[:, n], [2.5, 97.5]).tolist(),
            "zero": zero[:, n].sum() / count.sum(),
            "ratio": wrong[:, n].sum() / max(wrong[:, first].sum(), 1e-9),
            "ratio_interval": np.percentile(ratios[:, n], [2.5, 97.5]).tolist(),
        }
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the check and prints its tables; 0 where the statement holds or nothing is claimed."""
    parser = argparse.ArgumentParser(description="Credit of single memory operations by three rewards.")
    parser.add_argument("--model", help="folder of a model; the warmed-up local:tiny if left out")
    parser.add_argument("--decisive", type=int, default=400, help="stop after so many decisive operations")
    parser.add_argument("--minutes", type=float, default=25.0, help="or after this time")
    parser.add_argument("--users", type=int, default=24, help="users judged at a time")
    parser.add_argument("--per-session", type=int, default=1, choices=(1, 2, 4), help="turns, each an operation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few users, no verdict")
    options = parser.parse_args(arguments)
    from mempiler.engines.local.model import LocalModel
    from mempiler.runs.tiny import tiny_folder

    began, rng = time.perf_counter(), random.Random(options.seed)
    model = LocalModel.load(options.model or tiny_folder(), device="cpu", threads=1)
    policy, judged, number = Policy(model, options.seed), [], 0
    users, wanted = (6, 1) if options.quick else (options.users, options.decisive)
    while sum(each.decisive for each in judged) < wanted and time.perf_counter() - began < 60 * options.minutes:
        per, seed = options.per_session, WORLD + options.seed
        talks = [Conversation.make(seed, number + n, TURNS // per, per) for n in range(users)]
        number += users
        judged += judge(policy, talks, rng, per)
        policy.pools.clear()
        policy.prompts.clear()
        print(f"{number} users, {sum(each.decisive for each in judged)} decisive", flush=True)
    return report(judged, policy.calls, time.perf_counter() - began, options.quick)


def report(judged: Sequence[Judged], calls: int, seconds: float, quick: bool) -> int:
    """Prints the table and the verdict."""
    decisive = sum(each.decisive for each in judged)
    print(f"\n{len(judged)} operations, {decisive} decisive; {calls} calls in {seconds:.0f} s\n")
    if not decisive:
        return 0 if quick else 1
    print(f"{'estimator':12} {'wrong':>6} {'95 %':>13} {'zero':>6} {'ratio':>6} {'95 %':>13} {'neutral adv^2':>14}")
    table = wrong_rates(judged)
    neutral = [each for each in judged if not each.decisive]
    for name, row in table.items():
        (low, high), (least, most) = row["interval"], row["ratio_interval"]
        square = float(np.mean([each.said[name] ** 2 for each in neutral])) if neutral else float("nan")
        spans = f"{low:5.3f} - {high:5.3f}", f"{least:5.3f} - {most:5.3f}"
        print(
            f"{name:12} {row['wrong']:6.3f} {spans[0]} {row['zero']:6.3f} {row['ratio']:6.3f} {spans[1]} {square:14.3f}"
        )
    if quick:
        print("\nno verdict: a quick run is too small")
        return 0
    most = table[f"local {TRAINED}"]["ratio_interval"][1]
    if decisive < ENOUGH:
        print(f"\nno verdict: {decisive} decisive operations, {ENOUGH} are needed; give more --minutes")
        return 1
    holds = most <= 0.5
    print(
        f"\nlocal groups wrong at most half as often as the trajectory reward: {'holds' if holds else 'DOES NOT HOLD'}"
    )
    print(f"(ratio of wrong signs, local {TRAINED}: upper end {most:.3f}; {decisive} decisive operations)")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
