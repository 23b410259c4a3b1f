"""The model that MLflow serves: rows with a history and a question in, answers with evidence out.

    MEMPILER_LM, MEMPILER_API_BASE                   the model, not needed with the offline engine, and its address
    MEMPILER_EMBEDDER, MEMPILER_EMBEDDER_API_BASE    the embedder, likewise
    MEMPILER_ALLOW_CODE                              1: a program may import its own module:Class method

A row brings its whole past; rows of one request share memories, and between requests nothing is kept.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError

from ..engines.lm import language_model
from ..errors import EndpointError, MempilerError, UserError
from ..programs.cache import MemoryCache
from ..programs.program import MemoryProgram
from ..programs.recording import failure_of
from ..programs.threads import gather
from ..records import History
from ..text import one_line
from .artifact import open_program

ENTRY = '''"""Entry of a program that `mempiler publish` made; what it does is in mempiler.runs.registered_model."""

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel
from pandas import DataFrame
from mempiler.runs.registered_model import Served


class Program(PythonModel):
    def load_context(self, context):
        self.served = Served(context.artifacts["program"])

    def predict(self, context, model_input: DataFrame, params=None):
        return self.served.predict(model_input.to_dict("records"))


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
        chosen = {name: given(f"MEMPILER_{name.upper()}") for name in ("embedder", "embedder_api_base")}
        opened = open_program(folder, given("MEMPILER_ALLOW_CODE") == "1", **chosen)
        # Keeps user content out of DSPy's disk cache on the server.
        name, api_base = opened.model(given("MEMPILER_LM")), given("MEMPILER_API_BASE")
        self.program, self.lm = opened.program, language_model(name, api_base=api_base, cache=False)

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Answers every row; all are checked before any model is asked.

        Args:
            rows: Each a past (`history` or `messages`) and the fields of the program's query, e.g. `question`.

        Returns:
            One object per row: the fields of the answer, `sources` (ids of turns), `evidence` (what was recalled), and
            `failure`, which is None unless the model's answer to this row could not be read.

        Raises:
            mlflow.exceptions.MlflowException: A row is wrong (400), or the model is not there (503).
        """
        # A table has arrays in the place of lists, and NaN in cells that are empty.
        written = json.dumps(list(rows), default=lambda value: getattr(value, "tolist", lambda: str(value))())
        plain = json.loads(written, parse_constant=lambda name: None)
        try:
            asked = [_query(self.program, row, n) for n, row in enumerate(plain, 1)]
            # A copy, so that requests share no state.
            program = copy.copy(self.program)
            program.cache = MemoryCache()
            own = {"lm": self.lm, "adapter": program.current_adapter()}
            with dspy.context(**own, trace=None, disable_history=True, warn_on_type_mismatch=False):
                return gather([partial(_answer, program, query) for query in asked])
        except MempilerError as error:
            raise _http(error) from error


def _query(program: MemoryProgram, row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """What the program is called with; columns that a table leaves empty are missing."""
    given = {name: value for name, value in row.items() if value is not None}
    pasts = [name for name in PAST if name in given]
    if len(pasts) != 1:
        raise UserError(f"row {number}: give one of history and messages, not {' and '.join(pasts) or 'neither'}")
    query = {name: given[name] for name in program.task.inputs if name in given}
    try:
        history = History.parse(given[pasts[0]], id=f"row-{number}")
        program.task.query(query, history.items, (), history.speakers)
    except UserError as error:
        raise UserError(f"row {number}: {error}") from error
    return {"history": history, **query}


def _answer(program: MemoryProgram, query: Mapping[str, Any]) -> dict[str, Any]:
    try:
        prediction = program(**query)
    except (AdapterParseError, LMError) as error:
        failure = failure_of(query["history"].id, error)
        if failure.kind == "endpoint":
            raise EndpointError(f"the model could not be asked: {one_line(error, 300)}") from error
        return {"answer": None, "sources": [], "evidence": [], "failure": failure.model_dump(mode="json")}
    context = prediction.get("context")
    hits = [hit.model_dump(mode="json") for hit in context.hits] if context else []
    fields = {name: value for name, value in prediction.toDict().items() if name not in ("context", "memory")}
    return {**fields, "sources": list(context.sources) if context else [], "evidence": hits, "failure": None}


def _http(error: MempilerError) -> Exception:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE

    if isinstance(error, EndpointError):
        return MlflowException(str(error), TEMPORARILY_UNAVAILABLE)
    return MlflowException(str(error), INVALID_PARAMETER_VALUE if isinstance(error, UserError) else INTERNAL_ERROR)
