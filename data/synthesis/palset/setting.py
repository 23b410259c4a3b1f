"""What a whole run of PAL-Set has in common, and how its steps are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import dspy

from ..runner import Check, CheckResult, Runner, Step
from .texts import LANGUAGES, LanguageCode, foreign

ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Setting:
    """What a whole run has in common."""

    language: LanguageCode
    months: int | None
    """Months of every user; None draws 7 to 12."""
    seed: int
    runner: Runner
    reviews: int = 1
    """How often records are reviewed and corrected."""

    def ask(
        self,
        step: Step,
        item_id: str,
        inputs: Mapping[str, Any],
        check: Check[ValueT],
        last_check: Check[ValueT] | None = None,
    ) -> ValueT | None:
        """Ask for texts in the language of the data; texts in another one are refused.

        Arguments and result are those of `Runner.ask`.
        """
        return self.runner.ask(
            step,
            item_id,
            {"language": LANGUAGES[self.language], **inputs},
            self._with_language_check(check),
            None if last_check is None else self._with_language_check(last_check),
        )

    def _with_language_check(self, check: Check[ValueT]) -> Check[ValueT]:
        """Return a check that refuses texts in another language, too."""

        def check_with_language(answer: dspy.Prediction) -> CheckResult[ValueT]:
            result = check(answer)
            foreign_texts = foreign(dict(answer.items()), self.language)
            if foreign_texts:
                return CheckResult(None, [*foreign_texts, *result.problems])
            return result

        return check_with_language
