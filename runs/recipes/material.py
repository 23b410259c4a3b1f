"""What an analysis of a section gets: the evaluated variants, their programs and histories, and their memories."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import dspy

from ...data.benchmark import Benchmark
from ...errors import UserError
from ...programs.program import MemoryProgram
from ...records import History
from ..experiment import chosen_examples
from ..report import WIRING
from ..setup import Setup
from .made import Made
from .section import Section, Variant
from .workbench import Workbench


@dataclass(frozen=True)
class Material:
    """A section after its variants were evaluated."""

    section: Section
    setup: Setup
    """With the section's benchmark, data and options."""
    made: Mapping[str, Made]
    """By the variant's label; those that a limit prevented are missing."""
    bench: Workbench

    @property
    def benchmark(self) -> Benchmark:
        """The section's benchmark, without a judge."""
        return self.setup.load()

    @property
    def comparable(self) -> bool:
        """False on a bundled sample or the offline engine."""
        return all(each.evaluation.comparable for each in self.made.values())

    def title(self, text: str) -> str:
        """A picture's title, marked if it is a wiring check."""
        return text if self.comparable else f"{text}\n{WIRING}"

    def examples(self) -> list[dspy.Example]:
        """The questions that were asked."""
        return list(chosen_examples(self.setup, self.benchmark, "all"))

    def histories(self) -> list[History]:
        """The distinct histories of these questions."""
        return list(dict.fromkeys(example.history for example in self.examples()))

    def variant(self, label: str) -> Variant:
        """A variant of the section by its label.

        Raises:
            UserError: There is none.
        """
        for variant in self.section.all_variants():
            if variant.label == label:
                return variant
        raise UserError(f"section {self.section.name!r} has no variant {label!r}")

    def program(self, label: str) -> AbstractContextManager[MemoryProgram]:
        """The program of a variant, in the context of its models."""
        return self.bench.program(self.variant(label), self.setup)

    def memories(self, label: str, history: History) -> list[Any]:
        """The memory after every item of a history, in order, and the settled one last where the method settles.

        They are those that were written for the questions: no call of a model is repeated.
        """
        with self.program(label) as program:
            return [node.memory for node in program.remember(history).chain() if node.parent is not None]

    def evaluate(self, variant: Variant) -> Made | None:
        """Evaluates one more variant on the section's questions; None where a limit was reached."""
        return self.bench.made(variant, self.setup, self.section.name, self.section.seeds)
