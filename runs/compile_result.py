"""The result of a compile: the kept program, its scores before and after, and what to say of them.

    result = mempiler.compile("turn-rag", benchmark="locomo", optimizer="labeled")
    print(result)
    result.save("my-program")

`runs/compile.py` makes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import BrokenRunError
from ..optimizers.frontier import FrontierPoint
from ..optimizers.history import Candidate
from ..optimizers.proposals import UnreadableAnswer
from ..programs.external.export import export_system
from ..programs.program import MemoryProgram
from .artifact import save
from .folder import RunFolder
from .manifest import read_manifest
from .pages.facts import difference_line, usage_line
from .pages.html import HTML
from .pages.page import open_page
from .pages.text import page_table
from .promotion import Promotion
from .results import Evaluation, raise_if_unanswered, refuse_broken
from .statistics import Difference, Verdict
from .tables import ResultTable
from .token_difference import tokens_of_questions

if TYPE_CHECKING:
    import pandas as pd

QuestionPart = Literal["test", "dev"]
"""A part of the split by which programs are scored."""


@dataclass(frozen=True)
class OptimizerProblems:
    """What went wrong in an optimizer without ending the run."""

    optimizer: str
    """The name of the optimizer."""
    failure: str | None = None
    """The error that ended it early, in one line; None for a limit or no error."""
    unreadable_answers: int = 0
    """Answers of the prompt LM that could not be read."""
    abandoned_proposals: int = 0
    """Proposals that could not be read, or were refused, to the last attempt."""
    refused_copies: int = 0
    """Proposals and candidates, the result among them, with eight words in a row of a training
    question or answer."""
    refused_long: int = 0
    """Proposals and candidates, the result among them, that were longer than `max_prompt_growth`
    allows."""
    examples: tuple[UnreadableAnswer, ...] = ()
    """The first of the unreadable answers."""
    has_rescued_program: bool = False
    """Whether the optimizer failed, and its best candidate up to then is the compiled program."""
    notes: tuple[str, ...] = ()
    """What else a user should know about the result, a line each."""

    def lines(self, run_name: str) -> list[str]:
        """Return the lines that describe the problems on the page of the run.

        Args:
            run_name: The name of the run, for the commands that the lines suggest.
        """
        lines: list[str] = []
        advice = f"--resume {run_name} tries again"

        if self.failure is not None:
            program = "its best candidate so far" if self.has_rescued_program else "the start"
            lines.append(
                f"{self.optimizer} failed ({self.failure}):"
                f" the run went on with {program}; {advice}"
            )

        if self.unreadable_answers:
            answers = "answer" if self.unreadable_answers == 1 else "answers"
            line = f"{self.unreadable_answers} {answers} of the prompt LM could not be read"
            line += f"; `mempiler show {run_name} --failed` shows some"
            lines.append(line)
        if self.refused_copies:
            lines.append(
                f"{_refused(self.refused_copies)} for repeating training questions or answers,"
                " eight or more words in a row"
            )
        if self.refused_long:
            lines.append(
                f"{_refused(self.refused_long)} for being longer than --max-prompt-growth allows"
            )
        if self.abandoned_proposals:
            # Trying again only helps if a proposal was lost. Of the others, a later attempt was
            # good.
            were = "proposal was" if self.abandoned_proposals == 1 else "proposals were"
            lines.append(f"{self.abandoned_proposals} {were} given up; {advice}")

        lines.extend(self.notes)
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the problems as records and `mempiler compile --json` have them."""
        return {
            "optimizer": self.optimizer,
            "ended": self.failure,
            "unreadable": self.unreadable_answers,
            "given_up": self.abandoned_proposals,
            "refused_copies": self.refused_copies,
            "refused_long": self.refused_long,
            "examples": [asdict(example) for example in self.examples],
            "rescued": self.has_rescued_program,
            "notes": list(self.notes),
        }


def _refused(count: int) -> str:
    """Return how many proposals and candidates were refused, as the beginning of a sentence."""
    if count == 1:
        return "1 proposal or candidate was refused"
    return f"{count} proposals or candidates were refused"


@dataclass(frozen=True)
class CompileResult:
    """The result of a compile.

    Example:
        result = mempiler.compile("turn-rag", benchmark="locomo", optimizer="labeled")
        print(result)
        result.save("my-program")
    """

    program: MemoryProgram
    """The program that was kept: the compiled one, or the start."""
    before: Evaluation
    """The start on the test questions; on the dev questions where there are no others."""
    after: Evaluation
    """The kept program on the test questions; equal to `before` without a gain."""
    dev: tuple[Evaluation, Evaluation | None]
    """Start and compiled program on the dev questions, which decided.

    The second is None if the budget did not suffice.
    """
    difference: Difference
    """The paired difference, after minus before."""
    scored_on: QuestionPart
    """The questions of `before` and `after`: "dev" only where there are no test questions."""
    promoted: bool
    """Whether the compiled program was kept."""
    folder: Path
    """Where the program is saved."""
    candidates: tuple[Candidate, ...]
    """The candidates that the optimizer scored."""
    frontier: tuple[FrontierPoint, ...]
    """The candidates of GEPA by score and tokens of prompts; empty for other optimizers."""
    usage: dict[str, Any]
    """Calls by role, tokens and cost of the whole run, optimizer and all scoring included."""
    stopped: str | None
    """The limit that was reached, if any."""
    run: Path
    """The folder of the run, with its page `report.html`."""
    run_id: str
    """The id of the run: that of its MLflow run, unless `tracking` was "off"."""
    model: str | None
    """The name of the model whose weights were trained, as `--lm` takes it; None if none were."""
    promotion: Promotion
    """What the dev questions say of the compiled program, and what it was promoted for."""
    optimizer_problems: OptimizerProblems
    """What went wrong in the optimizer."""
    margin: float | None = None
    """How much worse a cheaper program might be; None promotes none for being cheaper."""
    rejected_evaluation: Evaluation | None = None
    """The compiled program on the test questions, if it was not kept, but scored."""
    rejected_difference: Difference | None = None
    """That program minus the start on the test questions."""
    untouched_out: Path | None = None
    """The folder of `--out`, if it holds another program, which the start did not replace."""
    is_changed: bool = True
    """Whether the optimizer returned a program that can answer otherwise than the start."""

    @property
    def rejection_reason(self) -> str | None:
        """Why the start was kept; None if the compiled program was."""
        return None if self.promoted else self.promotion.rejection_reason

    @property
    def verdict(self) -> Verdict:
        """How the kept program compares with the start: "better", "not told apart", and so on."""
        return self.difference.verdict

    def save(self, folder: str | Path) -> None:
        """Save the program that was kept to another folder, with what the manifest says of it.

        Raises:
            UserError: The folder holds something that is no saved program, or cannot be written.
        """
        manifest = read_manifest(self.folder)
        save(self.program, folder, manifest)

    def export(self) -> str:
        """Return Python code that gives a memory system its compiled values, without Mempiler.

        It is the system that was compiled: one of `mempiler list systems`, or a store of your own
        with `TEXTS` or `NUMBERS`.

        Raises:
            UserError: The program has no texts or numbers of a memory system.
        """
        return export_system(self.program)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each question of `after`."""
        return self.after.to_pandas()

    def table(self) -> ResultTable:
        """Return scores before and after by category, the verdict, the cost, and the folders."""
        page = open_page(RunFolder(self.run))
        table = page_table(page, self.run / HTML)
        notes = [
            *table.notes,
            f"LM calls, whole run: {usage_line(self.usage)}",
            f"program: {self.folder}",
        ]
        if self.stopped:
            notes.append(f"stopped by a limit: {self.stopped}; resume={self.run.name!r} goes on")
        return replace(table, notes=notes)

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def statement(self) -> str:
        """Return sentences on which program was kept, why, and how to keep the other one."""
        reason_against = self.promotion.rejection_reason
        if not self.promoted:
            sentences = [
                f"{reason_against}. Kept the original program.",
                *self._sentences_about_rejected_program(),
            ]
            return " ".join(sentences)

        scores = difference_line(self.difference, describe_questions(self.scored_on))
        if reason_against is not None:
            return f"Kept by --force: {reason_against}; {scores}"

        return f"dev questions, which decide: {self.promotion.statement}; {scores}"

    def _sentences_about_rejected_program(self) -> list[str]:
        """Return what to say of a compiled program that was rejected, and how to keep it."""
        _, compiled_on_dev = self.dev
        if compiled_on_dev is None:
            # A limit ended the run before there was a compiled program with scores.
            return []

        offer = (
            "To keep the compiled one all the same, repeat the command with"
            f" --resume {self.run.name} --force (in Python: resume=, force=True)"
        )
        rejected = self.rejected_evaluation
        difference = self.rejected_difference
        if rejected is None or rejected.score is None or difference is None:
            # The program was not scored on the test questions: there are none, or it equals the
            # start, or a limit ended the run.
            return [f"{offer}."]

        numbers = f"{difference}; scope: {difference.scope}"
        if rejected.broken:
            numbers += f"; {rejected.breakage}"
        return [
            f"Not promoted: the compiled program scored {rejected.score:.3f} on the test"
            f" questions, the original {self.before.score:.3f} ({numbers}).",
            # Whoever keeps programs for their test scores has no unseen questions any more.
            "Test questions must not decide.",
            # The resumed run has the answers to all questions in its store.
            f"{offer}; nothing is asked anew.",
        ]

    def refuse_broken(self) -> None:
        """Raise an error if the scores cannot be trusted, or the run has achieved nothing.

        The command line calls this after it has printed the result, for its exit status.

        Raises:
            BrokenRunError: A scoring is broken, nothing was scored, or the optimizer failed and
                changed nothing. The message names the run.
        """
        start_on_dev = self.dev[0]
        for evaluation in (start_on_dev, self.before, self.after):
            refuse_broken(evaluation, self.run.name)
        # These are the scorings of the start. A compiled program is scored only after it.
        raise_if_unanswered((start_on_dev, self.before), self.stopped, self.run.name)

        problems = self.optimizer_problems
        has_compiled_nothing = problems.failure is not None and not problems.has_rescued_program
        if has_compiled_nothing:
            raise BrokenRunError(
                f"broken run: {problems.optimizer} failed ({problems.failure})"
                f" and nothing was compiled; --resume {self.run.name} tries again"
            )

    def gate(self) -> dict[str, Any]:
        """Return the scores by which the gate of the model registry compares programs.

        They are those of the kept program on the dev questions, in the order of the split. They
        stand in the manifest of the program (`runs.gate` reads them there).
        """
        start_on_dev, compiled_on_dev = self.dev
        if self.promoted and compiled_on_dev is not None:
            kept_on_dev = compiled_on_dev
        else:
            kept_on_dev = start_on_dev

        # Manifests are published with their programs, so groups are numbered: their names may be
        # ids of users.
        rows = kept_on_dev.headline_rows
        groups = list(dict.fromkeys(row.group for row in rows))
        return {
            "score": kept_on_dev.score,
            "n": kept_on_dev.n,
            "stopped": kept_on_dev.stopped,
            "lm": kept_on_dev.lm,
            "judge": kept_on_dev.judge,
            # The gate always compares dev questions. The name is here for readers of the manifest.
            "split": "dev",
            "min_n": self.difference.min_n,
            "margin": self.margin,
            "scores": [row.score for row in rows],
            "tokens": [round(tokens) for tokens in tokens_of_questions(kept_on_dev, rows)],
            "groups": [groups.index(row.group) for row in rows],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler compile --json` prints.

        The start is "before", the kept program "after", and a compiled program that was not kept
        "refused_candidate".
        """
        start_on_dev, compiled_on_dev = self.dev
        gain = self.promotion.gain
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "scored_on": self.scored_on,
            "difference": self.difference.to_dict(),
            "dev": {
                "before": start_on_dev.score,
                "after": compiled_on_dev.score if compiled_on_dev else None,
            },
            "dev_difference": None if gain is None else gain.to_dict(),
            "refused_candidate": self._rejected_to_dict(),
            "program": str(self.folder),
            "untouched_out": None if self.untouched_out is None else str(self.untouched_out),
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "frontier": [asdict(point) for point in self.frontier],
            "optimizer": self.optimizer_problems.to_dict(),
            "run": str(self.run),
            "promoted": self.promoted,
            "promotion": self.promotion.to_dict(),
            "rejection_reason": self.rejection_reason,
            "usage": self.usage,
            "stopped": self.stopped,
            "run_id": self.run_id,
            "model": self.model,
        }

    def _rejected_to_dict(self) -> dict[str, Any] | None:
        """Return the test scores of the program that was not kept; None if it has none."""
        if self.rejected_evaluation is None or self.rejected_difference is None:
            return None
        return {
            "test": self.rejected_evaluation.to_dict(),
            "difference": self.rejected_difference.to_dict(),
        }


def describe_questions(part: QuestionPart) -> str:
    """Return what pages call the questions of a result's scores."""
    return "test questions" if part == "test" else "dev questions, which also decided"
