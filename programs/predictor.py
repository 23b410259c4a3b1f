"""Predictors, and the modules of a program that are made of them and know their settings.

`Predictor` is `dspy.Predict` that can pick the demos nearest to its inputs. DSPy's KNNFewShot replaces
`program.forward`, which no saved state holds. Here the pool is the predictor's own demos and `nearest` says how many a
prompt shows. Nearness is BM25 over the question, else over the text inputs all demos have: what was recalled for two
questions says little of how near the questions are. An embedding model of the program adds the cosine.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Self, cast

import dspy
import numpy as np
from pydantic import BaseModel

from ..async_bridge import is_bridged, off_loop, run_bridged, wait_for
from ..engines.async_models import can_be_awaited
from ..engines.embedders import embedder as offline_embedder
from ..errors import UserError
from ..memory.search.embedder import Embedder, query_vectors
from ..memory.search.index_cache import IndexCache
from ..memory.search.scores import standard_scores
from ..memory.search.tokens import tokens
from ..reading.failures import concerns_prompt
from ..records.context_variables import set_context
from .adapter import adapter as make_adapter
from .adapter import longest_text
from .recording import failure_of, record_call, record_failure
from .single_flight import SingleFlight

DEMO_PREDICTOR_KEY = "dspy_meant_for"
"""Key of a demo that is for one predictor alone, which it names: optimizers give a labelled one to all of them."""
DEMO_EMBEDDER: ContextVar[Embedder | None] = ContextVar("MEANING", default=None)
"""The embedding model by which demos are chosen too, for what is asked in this context."""
CallPredictor = Callable[..., dspy.Prediction | None]
"""Calls a predictor by its name, with its inputs; None where its output stays unreadable."""
_PIECES = ("embedder", "indexes", "stores", "thing")
"""Arguments that are what a part is made of, and no settings; so are modules, indexes and whatever embeds."""


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
        with record_call(self, kwargs) as call:
            call.prediction = self._ask({"demos": self.select_demos(kwargs), **kwargs})
            return call.prediction

    async def aforward(self, **kwargs: Any) -> dspy.Prediction:
        return await run_bridged(partial(Predictor.forward, self, **kwargs))

    def _ask(self, inputs: dict[str, Any]) -> dspy.Prediction:
        """Ask as `dspy.Predict` does; in bridged code no thread waits for a model that can be awaited."""
        if not is_bridged():
            return super().forward(**inputs)
        lm = inputs.get("lm") or self.lm or dspy.settings.lm
        if can_be_awaited(lm):
            return wait_for(super().aforward(**inputs))
        with dspy.context(send_stream=None):  # a thread has no way to the stream of a loop
            return off_loop(partial(super().forward, **inputs))

    def select_demos(self, inputs: dict[str, Any]) -> list[Any]:
        """The demos that a prompt for these inputs shows, in the order of the pool."""
        demos = [demo for demo in self.demos if is_for(demo, self.path)]
        if self.nearest is None or len(demos) <= self.nearest:
            return demos
        signature = cast("Any", self.signature)
        names = [name for name in signature.input_fields if all(isinstance(demo.get(name), str) for demo in demos)]
        names = ["question"] if "question" in names else names
        # The demos are kept beside their ranking, so that their ids are not reused while it is cached.
        rankings: SingleFlight = vars(self).setdefault("_rankings", SingleFlight(capacity=4))
        embedder = DEMO_EMBEDDER.get()
        key = (embedder and embedder.name, *map(id, demos))
        _, scored = rankings.get_or_compute(
            key, lambda: (demos, _ranking([_text(demo, names) for demo in demos], embedder))
        )
        scores = scored(_text(inputs, names))
        return [demos[n] for n in sorted(np.argsort(-scores, kind="stable")[: self.nearest])]


def predictor(signature: type[dspy.Signature]) -> Predictor:
    """A predictor with its own signature class.

    DSPy's InferRules edits the instructions of the signature class in place; a copy keeps that from reaching every
    other program of the process.
    """
    return Predictor(signature.with_instructions(signature.instructions))


def replace_predictors(module: dspy.Module) -> None:
    """Replaces every plain `dspy.Predict` below a module by a `Predictor`, which does the same and more.

    So writing steps may be made of `dspy.ChainOfThought` or any other module of DSPy's.
    """
    for _, found in module.named_sub_modules(dspy.Predict):
        if type(found) is dspy.Predict:
            found.__class__ = Predictor
            signature: Any = found.signature
            found.signature = signature.with_instructions(signature.instructions)


def semantic_embedder(embedder: Embedder | None) -> Embedder | None:
    """The embedder, if it adds to a search by words: the offline one compares spelling, and finds less than BM25."""
    return None if embedder is None or embedder.name == offline_embedder().name else embedder


def is_for(demo: Any, path: str) -> bool:
    """Whether the predictor of a path may show a demo."""
    return demo.get(DEMO_PREDICTOR_KEY, path) == path


def _text(values: Any, names: list[str]) -> str:
    return " ".join(str(values.get(name, "")) for name in names)


def _ranking(texts: list[str], embedder: Embedder | None) -> Callable[[str], np.ndarray]:
    """How near each text is to one: a set of a few dozen that never changes, for which rank-bm25 is enough."""
    from rank_bm25 import BM25Plus

    # A blank demo has a word all the same, since a collection without any has no average length.
    words = BM25Plus([tokens(text) or [""] for text in texts])
    if embedder is None:
        return lambda text: words.get_scores(tokens(text))
    # As queries, which are compared with one another, and are kept on nobody's shelf.
    rows = query_vectors(embedder, texts)
    return lambda text: (
        standard_scores(words.get_scores(tokens(text))) + standard_scores(rows @ query_vectors(embedder, [text])[0])
    )


def predictors_of(module: dspy.Module) -> dict[str, dspy.Predict]:
    """Every predictor at or below a module by its path, e.g. "extract.predict"; frozen and compiled ones included."""
    found: Any = module.named_sub_modules(dspy.Predict)
    return {path.removeprefix("self."): one for path, one in found}


class Component(dspy.Module):
    """A module whose settings are its constructor arguments, or the fields of one that is a pydantic model.

    Raises:
        UserError: A setting is no plain value (a number, text, truth value, or a list or dict of these). Embedders,
            indexes and other modules are no settings: they are what the part is made of.
    """

    longest_text: int | None = None
    """Most characters of a text that the part takes from a model; a longer one is no answer."""
    resolve_dates: bool = False
    """Whether models are shown the date beside each relative date; its program sets it, by its `task.dates`."""
    _settings: dict[str, Any]
    predictors_below = predictors_of

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parameters = inspect.signature(cls.__init__).parameters.values()
        loose = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if loose and "__init__" in vars(cls):
            raise UserError(f"{cls.__name__}: the constructor takes *{loose[0]}; name every setting")

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._settings = _settings(cls, args, kwargs)
        return self

    @property
    def config(self) -> dict[str, Any]:
        """The settings by name, without embedders and modules."""
        return dict(self._settings)

    def try_call(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Calls a predictor, or a module made of them.

        Returns:
            The prediction; None where the answer stays unreadable, or the endpoint refuses the prompt for its content
            or length. The failure is recorded.
        """
        adapter = dspy.settings.adapter or make_adapter()
        try:
            with set_context(longest_text, self.longest_text), dspy.context(adapter=adapter):
                return predictor(**inputs)
        except Exception as error:
            if not concerns_prompt(error):
                raise
            paths = (path for path, found in self.named_sub_modules() if found is predictor)
            record_failure(failure_of(next(paths, type(predictor).__name__).removeprefix("self."), error))
            return None

    def call_predictor(self, name: str, **inputs: Any) -> dspy.Prediction | None:
        """Calls the predictor of a name, as `attempt` does."""
        return self.try_call(getattr(self, name), **inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            setattr(new, name, value if hasattr(value, "embed") else copy.deepcopy(value, memo))
        return new


def _settings(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if cls.__init__ is dspy.Module.__init__:
        return {}
    try:
        bound = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
    except TypeError:
        return {}  # the constructor itself reports the error
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        if isinstance(value, BaseModel):
            found |= value.model_dump(mode="json")
        elif not (name in _PIECES or isinstance(value, dspy.Module | IndexCache) or hasattr(value, "embed")):
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                plain = "use numbers, texts, lists or dicts"
                raise UserError(f"{cls.__name__}: the setting {name} = {value!r} cannot be saved; {plain}") from None
            found[name] = value
    return found
