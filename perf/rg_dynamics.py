"""Checks the three propositions of RGMem's appendix B by numbers; no language model takes part.

B.1: the majority of n noisy observations tells more of a binary trait than one of them. Its error is an exact binomial
sum. The bound that the proof uses (Eq. 16, exp(-2n(1-2e)^2)) is violated already at e = .1, n = 3: Hoeffding's
inequality for variables in [-1, 1], whose range is 2, gives exp(-n(1-2e)^2/2). The proposition stands with that one.

B.2: a profile that follows the sign of the evidence summed so far, and only beyond a threshold, changes finitely often
and ends with the sign of the drift. A simulation ends; what may come after it is bounded by Hoeffding's inequality.
Two steps of the proof do not hold as printed: the sum may stay beyond the threshold between two changes, and may fall
below it again after the last; both are counted here.

B.3: a fast and a slow average both reach the trait, before and after it switches, at the rates (1-b)^t and (1-a)^t.
The slow rate has one exception: a start whose slow part is zero, b0 = -a a0 / (b - a), decays at the fast rate.

Usage:
    $ python perf/rg_dynamics.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

NOISES = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 4), Fraction(2, 5), Fraction(9, 20))
SIZES = tuple(range(1, 202, 2))
STEPS, RUNS, SEED = 20_000, 200, 0
TOLERANCE = 1e-9
"""How far a limit, a rate or a closed form may be off."""
SAMPLING = 5.0
"""How many standard errors a simulated mean may be off."""


@dataclass(frozen=True)
class Check:
    """One statement and whether the numbers agree with it."""

    name: str
    found: str
    holds: bool


def majority_error(noise: Fraction, n: int) -> Fraction:
    """Probability that more than half of `n` (odd) observations are flipped: an exact binomial sum."""
    flipped = range(n // 2 + 1, n + 1)
    return sum((math.comb(n, k) * noise**k * (1 - noise) ** (n - k) for k in flipped), Fraction(0))


def information(error: Fraction) -> float:
    """Bits that a binary symmetric channel with this error carries about its uniform input (Eq. 14 and 15)."""
    p = float(error)
    return 1.0 if p == 0 else 1 + p * math.log2(p) + (1 - p) * math.log2(1 - p)


def hoeffding(noise: Fraction, n: int) -> float:
    """Bound of `majority_error` for variables in [-1, 1]: exp(-n(1-2e)^2/2)."""
    return math.exp(-n * float(1 - 2 * noise) ** 2 / 2)


def printed_bound(noise: Fraction, n: int) -> float:
    """The bound as the paper prints it (Eq. 16): exp(-2n(1-2e)^2), right for variables in [0, 1] only."""
    return math.exp(-2 * n * float(1 - 2 * noise) ** 2)


def proposition_1(noises: Sequence[Fraction] = NOISES, sizes: Sequence[int] = SIZES) -> list[Check]:
    """B.1 for every noise level: information, the bound, and where the printed bound fails."""
    found = []
    for noise in noises:
        errors = {n: majority_error(noise, n) for n in sizes}
        # Errors are compared as fractions: information is strictly falling in them, and floats would call ties.
        smaller = [n for n in sizes if errors[n] < noise]
        first = next((n for n in sizes if all(m in smaller for m in sizes if m >= n)), None)
        gain = information(errors[first]) - information(noise) if first else 0.0
        told = f"from n0 = {first}; there I(Z;S) - I(Z;X1) = {gain:.4f} bits"
        found.append(Check(f"B.1, e = {float(noise):.2f}: I(Z;S) > I(Z;X1) for odd n >= n0", told, gain > 0))
        above = [n for n in sizes if errors[n] > hoeffding(noise, n)]
        name = f"B.1, e = {float(noise):.2f}: error <= exp(-n(1-2e)^2/2)"
        found.append(Check(name, f"{len(above)} of {len(sizes)} n above it", not above))
    return found


def violations(noise: Fraction, sizes: Sequence[int] = SIZES) -> list[int]:
    """The sizes at which the exact error exceeds the printed bound (Eq. 16)."""
    return [n for n in sizes if majority_error(noise, n) > printed_bound(noise, n)]


def profile(evidence: np.ndarray, threshold: float, start: int) -> np.ndarray:
    """The profile after every step (Eq. 18 and 19), of +1 and -1; runs in rows, steps in columns."""
    total = evidence.cumsum(axis=1)
    signs = np.where(np.abs(total) >= threshold, np.sign(total), 0).astype(np.int8)
    states = np.concatenate([np.full((len(signs), 1), start, np.int8), signs], axis=1)
    # Of every step the last one before it, or itself, that was beyond the threshold.
    known = np.maximum.accumulate(np.where(states != 0, np.arange(states.shape[1]), 0), axis=1)
    return np.take_along_axis(states, known, axis=1)


def proposition_2(
    drift: float, threshold: float, start: int, steps: int = STEPS, runs: int = RUNS, seed: int = SEED
) -> list[Check]:
    """B.2 for evidence that is uniform in [drift - .9, drift + .9], all of it within [-1, 1] for |drift| <= .1."""
    evidence = np.random.default_rng(seed).uniform(drift - 0.9, drift + 0.9, (runs, steps))
    states, total = profile(evidence, threshold, start), evidence.cumsum(axis=1)
    changed = states[:, 1:] != states[:, :-1]
    counts, beyond = changed.sum(axis=1), np.abs(total) >= threshold
    last = int(np.flatnonzero(changed.any(axis=0)).max(initial=-1)) + 1
    # Another change needs a sum of the other sign: Hoeffding for every later step, summed; the range is 1.8.
    later = 2 * drift**2 / 1.8**2
    rest = math.exp(-later * (steps + 1)) / -math.expm1(-later)
    name = f"B.2, drift {drift:+.2f}, theta {threshold:g}, m0 = {start:+d}"
    wanted = int(math.copysign(1, drift))
    aligned = int((states[:, -1] == wanted).sum())
    stayed = int((beyond & ~changed).any(axis=1).sum())
    fell = int(((np.cumsum((states[:, 1:] == wanted) & beyond, axis=1) > 0) & ~beyond).any(axis=1).sum())
    quiet = f"of {runs} runs, {stayed} stay beyond theta without a change, {fell} fall below it after m = sign(drift)"
    told = f"at most {counts.max()} a run, the last at step {last} of {steps}; a later one has p <= {rest:.1g} a run"
    return [
        Check(f"{name}: finitely many changes", told, last < steps / 2 and rest < TOLERANCE),
        Check(f"{name}: ends with the drift's sign", f"{aligned} of {runs} runs", aligned == runs),
        Check(f"{name}: changes only where |S| >= theta", quiet, not bool((changed & ~beyond).any())),
    ]


def means(
    fast: float, slow: float, trait: float, start: tuple[float, float], steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Expected fast and slow variable at steps 0 to `steps` (Eq. 20 and 21 with E[e] = trait)."""
    y, m = [start[0]], [start[1]]
    for _ in range(steps):
        y, m = [*y, (1 - fast) * y[-1] + fast * trait], [*m, (1 - slow) * m[-1] + slow * y[-1]]
    return np.array(y), np.array(m)


def proposition_3(fast: float = 0.3, slow: float = 0.05, steps: int = 600) -> list[Check]:
    """B.3: both limits and rates, before and after a switch from +.6 to -.4, and the averages of simulated runs."""
    found, start = [], (-0.2, 0.9)
    for name, trait in (("fixed trait", 0.6), ("after the switch", -0.4)):
        y, m = means(fast, slow, trait, start, steps)
        off = max(abs(y[-1] - trait), abs(m[-1] - trait))
        found.append(Check(f"B.3, {name}: E[y] and E[m] reach {trait:+.1f}", f"off by {off:.1g}", off < TOLERANCE))
        a, b, t = y - trait, m - trait, np.arange(steps + 1)
        off = float(np.abs(a - a[0] * (1 - fast) ** t).max())
        found.append(Check(f"B.3, {name}: E[y] - mu = a0 (1-b)^t", f"off by {off:.1g}", off < TOLERANCE))
        part = slow * a[0] / (fast - slow)
        off = float(np.abs(b - (b[0] + part) * (1 - slow) ** t + part * (1 - fast) ** t).max())
        rate = b[101] / b[100]
        told = f"closed form off by {off:.1g}; ratio at t = 100 {rate:.9f}"
        holds = off < TOLERANCE and abs(rate - (1 - slow)) < TOLERANCE
        found.append(Check(f"B.3, {name}: E[m] - mu decays at 1-a = {1 - slow:g}", told, holds))
        start = (float(y[-1]), float(m[-1]))
    y, m = means(fast, slow, 0.6, (1.0, 0.6 - slow * 0.4 / (fast - slow)), 20)
    rate = (m[11] - 0.6) / (m[10] - 0.6)
    told = f"ratio at t = 10 {rate:.9f}"
    found.append(Check("B.3, the exception: no slow part, rate 1-b", told, abs(rate - (1 - fast)) < TOLERANCE))
    return [*found, _simulated(fast, slow, steps)]


def _simulated(fast: float, slow: float, steps: int, runs: int = 2000, seed: int = SEED) -> Check:
    rng, traits = np.random.default_rng(seed), [0.6] * steps + [-0.4] * steps
    y, m, off = np.full(runs, -0.2), np.full(runs, 0.9), 0.0
    for t, trait in enumerate(traits, 1):
        e = np.where(rng.random(runs) < (1 + trait) / 2, 1.0, -1.0)
        y, m = (1 - fast) * y + fast * e, (1 - slow) * m + slow * y
        if t in (steps, 2 * steps):
            off = max(off, *(abs(x.mean() - trait) / (x.std(ddof=1) / math.sqrt(runs)) for x in (y, m)))
    return Check(f"B.3, {runs} simulated runs end at both traits", f"{off:.1f} standard errors off", off < SAMPLING)


def main() -> None:
    shown = ", ".join(f"{float(noise):g}" for noise in NOISES)
    print(f"B.1: e in {shown}; odd n to {SIZES[-1]}, exact fractions")
    print(f"B.2: {RUNS} runs of {STEPS} steps, evidence uniform in drift +- .9, seed {SEED}")
    print(f"B.3: a = .05, b = .3, 600 steps each; tolerance {TOLERANCE:g}, simulations {SAMPLING:g} standard errors\n")
    checks = proposition_1()
    for drift, threshold, start in ((0.1, 3.0, -1), (-0.1, 3.0, 1), (0.05, 6.0, -1), (0.1, 0.5, 1)):
        checks += proposition_2(drift, threshold, start)
    checks += proposition_3()
    for check in checks:
        print(f"{'holds ' if check.holds else 'FAILS '} {check.name}: {check.found}")
    print("\nThe paper's Eq. 16, error <= exp(-2n(1-2e)^2), does not hold:")
    for noise in NOISES:
        broken = violations(noise)
        n = next((n for n in broken if n > 1), broken[0])
        exact, bound = float(majority_error(noise, n)), printed_bound(noise, n)
        told = f"violated at {len(broken)} of {len(SIZES)} n, e.g. n = {n}: {exact:.4g} > {bound:.4g}"
        print(f"  e = {float(noise):.2f}: {told}")
    raise SystemExit(0 if all(check.holds for check in checks) else 1)


if __name__ == "__main__":
    main()
