"""The predictor of all programs: `dspy.Predict` that can pick the demos nearest to its inputs.

DSPy's KNNFewShot replaces `program.forward`, which no saved state holds. Here the pool is the predictor's own demos and
`nearest` says how many a prompt shows. Nearness is BM25 over the question, else over the text inputs all demos have:
what was recalled for two questions says little of how near the questions are.
"""

from __future__ import annotations

from typing import Any, cast

import dspy
import numpy as np

from ..memory.words import tokens
from .flight import Flight
from .recording import recorded

MEANT_FOR = "dspy_meant_for"
"""Key of a demo that is for one predictor alone, which it names: optimizers give a labelled one to all of them."""


class Predictor(dspy.Predict):
    """A predictor whose demos may be chosen per call.

    Args:
        signature: As `dspy.Predict` takes it.
    """

    nearest: int | None = None
    """How many demos a prompt shows, the nearest ones; None shows all."""
    path: str = ""
    """Its name in the program it is part of."""

    @property
    def label(self) -> str:
        """What tables call it: its name in its program, else what it does."""
        signature: Any = self.signature
        return self.path or f"{', '.join(signature.input_fields)} -> {', '.join(signature.output_fields)}"

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        with recorded(self, kwargs) as call:
            call.prediction = super().forward(**{"demos": self.choose(kwargs), **kwargs})
            return call.prediction

    async def aforward(self, **kwargs: Any) -> dspy.Prediction:
        with recorded(self, kwargs) as call:
            call.prediction = await super().aforward(**{"demos": self.choose(kwargs), **kwargs})
            return call.prediction

    def choose(self, inputs: dict[str, Any]) -> list[Any]:
        """The demos that a prompt for these inputs shows, in the order of the pool."""
        demos = [demo for demo in self.demos if is_for(demo, self.path)]
        if self.nearest is None or len(demos) <= self.nearest:
            return demos
        signature = cast("Any", self.signature)
        names = [name for name in signature.input_fields if all(isinstance(demo.get(name), str) for demo in demos)]
        names = ["question"] if "question" in names else names
        # The demos are kept beside their ranking, so that their ids are not reused while it is cached.
        rankings: Flight = vars(self).setdefault("_rankings", Flight(capacity=4))
        _, ranking = rankings.once(tuple(map(id, demos)), lambda: (demos, _ranking(demos, names)))
        scores = ranking.get_scores(tokens(" ".join(str(inputs.get(name, "")) for name in names)))
        return [demos[n] for n in sorted(np.argsort(-scores, kind="stable")[: self.nearest])]


def predictor(signature: type[dspy.Signature]) -> Predictor:
    """A predictor with its own signature class.

    DSPy's InferRules edits the instructions of the signature class in place; a copy keeps that from reaching every
    other program of the process.
    """
    return Predictor(signature.with_instructions(signature.instructions))


def adopt(module: dspy.Module) -> None:
    """Replaces every plain `dspy.Predict` below a module by a `Predictor`, which does the same and more.

    So writing steps may be made of `dspy.ChainOfThought` or any other module of DSPy's.
    """
    for _, found in module.named_sub_modules(dspy.Predict):
        if type(found) is dspy.Predict:
            found.__class__ = Predictor
            signature: Any = found.signature
            found.signature = signature.with_instructions(signature.instructions)


def is_for(demo: Any, path: str) -> bool:
    """Whether the predictor of a path may show a demo."""
    return demo.get(MEANT_FOR, path) == path


def _ranking(demos: list[Any], names: list[str]) -> Any:
    """BM25 of demos: a set of a few dozen that never changes, for which rank-bm25 is enough."""
    from rank_bm25 import BM25Plus

    # A blank demo has a word all the same, since a collection without any has no average length.
    return BM25Plus([tokens(" ".join(demo[name] for name in names)) or [""] for demo in demos])
