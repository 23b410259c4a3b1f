"""What a registered model does when MLflow serves it: rows of a past and a question in, answers with evidence out.

MLflow runs the few lines of `ENTRY` (models from code: nothing is pickled), which hand the saved program in the model's
artifacts to `Served`. The language model is not part of it. The server's environment names it:

    MEMPILER_LM                 the model; needless for the offline engine
    MEMPILER_LMS                further models that a request may ask for with params {"lm": ...}, comma-separated
    MEMPILER_API_BASE           address of an OpenAI-compatible server
    MEMPILER_EMBEDDER           the embedder, if it is not the offline one; needless likewise
    MEMPILER_EMBEDDER_API_BASE  address of the embedder's
    MEMPILER_ALLOW_CODE         1: a program whose method is a module:Class of your own may import it

Limits: a row brings its whole past. The rows of one request share memories, so that two questions about one past write
it once; between requests nothing is kept. Memories that last are the store's (docs/production/store.md).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError, ContextWindowExceededError, LMError

from ..engines.meter import MeteredLM
from ..engines.models import language_model
from ..errors import DataError, EndpointError, MempilerError, UserError, one_line
from ..programs.gather import gather
from ..programs.program import MemoryProgram
from ..programs.remember import MemoryCache
from ..records import Failure, History
from .artifact import chosen_embedder, open_program

ENTRY = '''"""Entry of a program that `mempiler publish` made; what it does is in mempiler.runs.registered_model."""

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel
from pandas import DataFrame
from mempiler.runs.registered_model import Served


class Program(PythonModel):
    def load_context(self, context):
        self.served = Served(context.artifacts["program"])

    def predict(self, context, model_input: DataFrame, params=None):
        return self.served.predict(model_input.to_dict("records"), params or {})


set_model(Program())
'''

PAST = ("history", "messages")
"""Two names for what a row's question is about: a history, or chat messages; `History.parse` reads either."""


class Served:
    """A saved program behind an endpoint.

    Args:
        folder: The saved program.

    Raises:
        ProgramError: It does not fit this code.
        UserError: The environment names no model.
    """

    def __init__(self, folder: str | Path) -> None:
        given = os.environ.get
        embedder = chosen_embedder(folder, given("MEMPILER_EMBEDDER"), given("MEMPILER_EMBEDDER_API_BASE"))
        opened = open_program(folder, given("MEMPILER_ALLOW_CODE") == "1", embedder)
        self.program, self.lm = opened.program, opened.model(given("MEMPILER_LM"))
        further = [name.strip() for name in os.environ.get("MEMPILER_LMS", "").split(",")]
        self.lms = tuple(dict.fromkeys([self.lm, *filter(None, further)]))
        self._loaded: dict[str, Any] = {}

    def predict(self, rows: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Answers every row; all are checked before any model is asked.

        Args:
            rows: Each a past (`history` or `messages`) and the fields of the program's query, e.g. `question`.
            params: `lm`: one of the models the server allows.

        Returns:
            One object per row: the fields of the answer, `sources` (ids of turns), `evidence` (what was recalled), and
            `failure`, which is None unless the model's answer to this row could not be read.

        Raises:
            mlflow.exceptions.MlflowException: A row or parameter is wrong (400), or the model is not there (503).
        """
        try:
            lm = self._model(str(params.get("lm") or self.lm))
            asked = [_query(self.program, dict(row), n) for n, row in enumerate(rows, 1)]
            # A copy, so that requests share no state.
            program = copy.copy(self.program)
            program.cache = MemoryCache()
            with dspy.context(
                lm=lm, adapter=program.asking(), trace=None, disable_history=True, warn_on_type_mismatch=False
            ):
                return gather([partial(_answer, program, query) for query in asked])
        except MempilerError as error:
            raise _http(error) from error

    def _model(self, name: str) -> MeteredLM:
        if name not in self.lms:
            known = ", ".join(self.lms)
            raise UserError(f"lm {name!r} is not served here; choose one of: {known}, or set MEMPILER_LMS")
        # Keeps user content out of DSPy's disk cache on the server.
        return language_model(name, api_base=os.environ.get("MEMPILER_API_BASE"), cache=False, loaded=self._loaded)


def inputs_of(program: MemoryProgram) -> dict[str, bool]:
    """The columns of a row: whether each must be there."""
    return {**dict.fromkeys(program.task.inputs, True), **dict.fromkeys(PAST, False)}


def example_row(program: MemoryProgram) -> dict[str, Any]:
    """A row that shows the form; MLflow keeps it with the model."""
    said = {"role": "user", "name": "Ada", "content": "I moved to Lisbon last week.", "time": "2024-03-05"}
    known = {"question": "Where did Ada move?", "options": ["(a) Lisbon", "(b) Oslo"]}
    return {**{name: known.get(name, "...") for name in program.task.inputs}, "messages": [said]}


def _query(program: MemoryProgram, row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """What the program is called with; columns that a table leaves empty are missing."""
    given = {name: value for name, value in row.items() if not _empty(value)}
    pasts = [name for name in PAST if name in given]
    if len(pasts) != 1:
        raise UserError(f"row {number}: give one of history and messages, not {' and '.join(pasts) or 'neither'}")
    absent = [name for name in program.task.inputs if name not in given]
    if absent:
        raise UserError(f"row {number}: {absent[0]} is missing; {program.task.name} needs {inputs_of(program)}")
    query = {name: given[name] for name in program.task.inputs}
    if not isinstance(query.get("question", ""), str):
        raise UserError(f"row {number}: question is {type(query['question']).__name__}, not text")
    try:
        return {"history": History.parse(_plain(given[pasts[0]]), id=f"row-{number}"), **query}
    except DataError as error:
        raise UserError(f"row {number}: {error}") from error


def _answer(program: MemoryProgram, query: Mapping[str, Any]) -> dict[str, Any]:
    try:
        prediction = program(**query)
    except (AdapterParseError, ContextWindowExceededError) as error:
        kind = "parse" if isinstance(error, AdapterParseError) else "refused"
        told = " ".join(str(error).split())[:300]
        failure = Failure(kind=kind, where=query["history"].id, message=told).model_dump(mode="json")
        return {"answer": None, "sources": [], "evidence": [], "failure": failure}
    except LMError as error:
        raise EndpointError(f"the model could not be asked: {one_line(error, 300)}") from error
    context = prediction.get("context")
    hits = [hit.model_dump(mode="json") for hit in context.hits] if context else []
    fields = {name: value for name, value in prediction.toDict().items() if name not in ("context", "memory")}
    return {**fields, "sources": list(context.sources) if context else [], "evidence": hits, "failure": None}


def _empty(value: Any) -> bool:
    """None, or the not-a-number by which pandas marks an absent cell."""
    return value is None or (isinstance(value, float) and value != value)


def _plain(value: Any) -> Any:
    """Lists where MLflow has made arrays of them."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _http(error: MempilerError) -> Exception:
    """The exception that MLflow's server turns into the fitting status."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE

    if isinstance(error, EndpointError):
        return MlflowException(str(error), TEMPORARILY_UNAVAILABLE)
    return MlflowException(str(error), INVALID_PARAMETER_VALUE if isinstance(error, UserError) else INTERNAL_ERROR)
