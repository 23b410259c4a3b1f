"""A metric of one's own, by name: `module:function`.

    def names_the_city(example, prediction):           # in mymetrics.py
        right = example.answer in prediction.answer
        return float(right), "" if right else "Name the city."

    mempiler evaluate turn-rag --on jsonl --data questions.jsonl --metric mymetrics:names_the_city

The function gets the example (`question`, `answer`, `history`, `evidence`, ...) and the prediction (`answer`,
`context`), and returns a number from 0 to 1, or that and a feedback text for reflective optimizers. It is called from
many threads. Naming it imports, and so runs, its module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from numbers import Real
from typing import Any, cast

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError

from ...errors import MempilerError, UserError
from ..scorer import Score, Scorer, answer_of, explained


class OwnMetric:
    """A function that scores answers, with its results checked.

    Args:
        path: `module:function`.

    Raises:
        UserError: It cannot be imported, or is not callable.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = path.rpartition(":")[2].rpartition(".")[2]
        """The function's own name, for `Score.parts`."""
        self._function = _imported(path)

    def __call__(self, example: dspy.Example, prediction: dspy.Prediction) -> tuple[float, str | None]:
        """The score of one answer, and the function's feedback if it gives any.

        Raises:
            UserError: The function raised, or returned anything but a number from 0 to 1 (and a text).
        """
        try:
            found = self._function(example, prediction)
        except (MempilerError, LMError, AdapterParseError):
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise UserError(f"metric {self.path!r} failed on {example.id!r}: {' '.join(message.split())}") from error
        value, feedback = cast("tuple[Any, Any]", found if _is_pair(found) else (found, None))
        if not _is_score(value) or not (feedback is None or isinstance(feedback, str)):
            wanted = "a number from 0 to 1, or (number, feedback text)"
            raise UserError(f"metric {self.path!r} returned {found!r:.80} for {example.id!r}; it must return {wanted}")
        return float(value), feedback


class OwnScorer(Scorer):
    """Scores by a function of one's own.

    Args:
        path: `module:function`.
    """

    def __init__(self, path: str) -> None:
        self._function = OwnMetric(path)
        self.title = path

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        value, said = self._function(example, prediction)
        feedback = said or explained(example, answer_of(prediction), value)
        return Score(value, feedback, {self._function.name: value})


def _is_pair(found: Any) -> bool:
    return isinstance(found, tuple) and len(found) == 2


def _is_score(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= 1


def _imported(path: str) -> Callable[[dspy.Example, dspy.Prediction], Any]:
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        # Importing a module can raise any exception.
        hint = "; is its folder on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"metric {path!r} cannot be imported: {reason}{hint}") from error
    if not callable(found):
        raise UserError(f"metric {path!r} is {found!r:.60}, not a function(example, prediction)")
    return found
