"""The gate of the model registry: may a program take the place of the one that an alias names?

Both programs were scored on dev questions when they were compiled. The new one is accepted by the
rule that decides in a compile, too: if it is better there, or cheaper and hardly worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from .manifest import Manifest
from .promotion import DevResults, Promotion, PromotionBasis, judge_candidate
from .statistics import MIN_N, Difference, Scope

SAME_BENCHMARK = {
    "name": "benchmark",
    "metric": "metric",
    "sha256": "data (sha256)",
    "split_sha256": "split",
}
"""What must be the same in two manifests for their dev scores to be compared, and its name in
messages."""


@dataclass(frozen=True)
class GateDecision:
    """What the gate says of a program that is to be registered."""

    line: str
    """The decision on one line."""
    promotion: Promotion | None
    """What the dev questions say of the program and the current one; None if not compared."""

    @property
    def difference(self) -> Difference | None:
        """The dev scores of the program minus those of the current one; None if not compared."""
        return None if self.promotion is None else self.promotion.gain

    @property
    def basis(self) -> PromotionBasis | None:
        """What the program was accepted for; None if not compared, or only forced."""
        return None if self.promotion is None else self.promotion.basis

    @property
    def scope(self) -> Scope | None:
        """Which questions the decision speaks of; None if no programs were compared."""
        return None if self.difference is None else self.difference.scope


def gate(
    manifest: Manifest,
    current: Manifest | None = None,
    address: str = "",
    force: bool = False,
    min_n: int | None = None,
    margin: float | None = None,
) -> GateDecision:
    """Decide whether a program may take the place of the current one.

    The programs are compared by their *gate scores*: those on the dev questions of their compiles
    (`CompileResult.gate`).

    Args:
        manifest: The manifest of the program.
        current: The manifest of the current program; None if there is none.
        address: The address of the current program, e.g. "models:/memory@prod", for messages.
        force: Whether a program may be registered that the gate would refuse.
        min_n: With fewer dev questions no program is accepted. None takes the number of the
            program's compile.
        margin: How much worse a cheaper program may be. None takes the margin of the program's
            compile, which may have had none: then no program is accepted for being cheaper.

    Raises:
        UserError: The gate refuses the program; the message says why.
    """
    promotion = None
    reason = _obstacle(manifest, current, address)
    if reason is None and current is not None and not _is_same_program(manifest, current):
        compiled_with: Mapping[str, Any] = manifest.scores["gate"]
        promotion = judge_candidate(
            _dev_results(manifest),
            _dev_results(current),
            min_n=compiled_with.get("min_n", MIN_N) if min_n is None else min_n,
            margin=compiled_with.get("margin") if margin is None else margin,
            baseline_name=address,
        )
        reason = promotion.rejection_reason

    if reason is not None:
        if not force:
            raise UserError(f"{reason}; --force registers it all the same")
        return GateDecision(f"forced: {reason}", promotion)

    new_scores = manifest.scores["gate"]
    line = f"dev {new_scores['score']:.3f} (n = {new_scores['n']}, {new_scores['lm']})"
    if current is None:
        return GateDecision(f"{line}, nothing to compare with", None)

    current_scores = current.scores["gate"]
    line += f", {address} has {current_scores['score']:.3f} ({current_scores['lm']})"
    if promotion is not None:
        line += f": {promotion.statement}"
    return GateDecision(line, promotion)


def _obstacle(manifest: Manifest, current: Manifest | None, address: str) -> str | None:
    """Return why a program cannot be judged by its dev scores; None if it can.

    Args:
        manifest: The manifest of the program.
        current: The manifest of the program that it would replace; None if there is none.
        address: The address of the current program, for messages.
    """
    new_scores = manifest.scores.get("gate")
    if not new_scores or new_scores["score"] is None:
        return "the program has no score on dev questions; make it with `mempiler compile`"
    if new_scores["stopped"]:
        stop = new_scores["stopped"]
        return f"its scoring was stopped ({stop}); finish the compile with --resume"
    if current is None or _is_same_program(manifest, current):
        # There is no other program to compare with, so the score of this one is all that it takes.
        return None

    current_scores = current.scores.get("gate")
    if not current_scores or current_scores["score"] is None:
        return f"{address} has no score on dev questions to compare with"
    return _benchmark_mismatch(manifest, current, address) or _scores_mismatch(
        new_scores, current_scores, address
    )


def _benchmark_mismatch(manifest: Manifest, current: Manifest, address: str) -> str | None:
    """Return how the benchmarks of two programs differ; None if they are the same."""
    for key, title in SAME_BENCHMARK.items():
        new_value = manifest.benchmark.get(key)
        current_value = current.benchmark.get(key)
        if new_value != current_value:
            values = f"{new_value} here, {current_value} there"
            return f"{address} was scored on another {title} ({values}); compile on the same one"
    return None


def _scores_mismatch(
    new_scores: Mapping[str, Any], current_scores: Mapping[str, Any], address: str
) -> str | None:
    """Return why the scores of two programs cannot be compared question by question.

    The result is None if they can. The caller has checked that both programs were scored on the
    same benchmark and split (`_benchmark_mismatch`). A compile keeps the scores in the order of the
    split. So if there are equally many, the n-th scores of both are those of the same question.

    Args:
        new_scores: The dev scores of the new program, as `CompileResult.gate` returns them.
        current_scores: The dev scores of the program that it would replace.
        address: The address of the current program, for messages.
    """
    if new_scores["judge"] != current_scores["judge"]:
        judges = f"{new_scores['judge']} here, {current_scores['judge']} there"
        return f"{address} was scored by another judge ({judges})"

    new_question_scores: Sequence[float] = new_scores.get("scores") or ()
    current_question_scores: Sequence[float] = current_scores.get("scores") or ()
    problem = "keeps no score of each dev question to compare by; compile it again"
    if not current_question_scores:
        return f"{address} {problem}"
    if not new_question_scores:
        return f"the program {problem}"

    if len(new_question_scores) != len(current_question_scores):
        counts = f"{len(new_question_scores)} here, {len(current_question_scores)} there"
        return f"{address} was scored on another number of dev questions ({counts})"
    return None


def _is_same_program(manifest: Manifest, current: Manifest) -> bool:
    """Tell whether the program is registered already: then it replaces itself."""
    return manifest.manifest_sha256 == current.manifest_sha256


def _dev_results(manifest: Manifest) -> DevResults:
    """Return what a program did on the dev questions of its compile."""
    scores: Mapping[str, Any] = manifest.scores["gate"]
    return DevResults(
        scores=scores["scores"],
        # The conversation of each question. It is the same for both programs.
        groups=[str(group) for group in scores["groups"]],
        # Programs that were compiled by an older version have none.
        tokens=scores.get("tokens") or (),
        lm=scores["lm"],
    )
