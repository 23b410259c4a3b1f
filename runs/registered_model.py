"""A registered program behind MLflow's endpoint.

A request has rows; each has a history and a question, and gets an answer with evidence. A row
brings its whole history: rows of one request share memories, and nothing is kept between requests.

The environment says which models are asked:

    MEMPILER_LM, MEMPILER_API_BASE
        the language model and its address; neither is needed with the offline engine
    MEMPILER_EMBEDDER, MEMPILER_EMBEDDER_API_BASE
        the embedder and its address, likewise
    MEMPILER_ALLOW_CODE
        1 lets a program import its own module:Class method
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
from ..records import Context, History
from ..text import one_line
from .artifact import open_program

ENTRY = '''"""Serves a program of Mempiler; see mempiler.runs.registered_model."""

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel
from pandas import DataFrame
from mempiler.runs.registered_model import ServedProgram


class Program(PythonModel):
    def load_context(self, context):
        self.program = ServedProgram(context.artifacts["program"])

    def predict(self, context, model_input: DataFrame, params=None):
        return self.program.predict(model_input.to_dict("records"))


set_model(Program())
'''
"""The code of a registered model, which MLflow imports."""

HISTORY_FIELDS = ("history", "messages")
"""Two names for the history of a row, which may be chat messages; `History.parse` reads either."""


class ServedProgram:
    """A saved program that answers the rows of requests.

    Args:
        folder: The saved program.

    Raises:
        ProgramError: It does not fit this code.
        UserError: The environment names no model.
    """

    def __init__(self, folder: str | Path) -> None:
        environment = os.environ
        opened = open_program(
            folder,
            allow_code=environment.get("MEMPILER_ALLOW_CODE") == "1",
            embedder=environment.get("MEMPILER_EMBEDDER"),
            embedder_api_base=environment.get("MEMPILER_EMBEDDER_API_BASE"),
        )
        self.program = opened.program
        self.lm = language_model(
            opened.model(environment.get("MEMPILER_LM")),
            api_base=environment.get("MEMPILER_API_BASE"),
            # DSPy's cache is on disk, where content of users must not be kept.
            cache=False,
        )

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Answer every row; all are checked before any model is asked.

        Args:
            rows: Each has a history (`history` or `messages`) and the inputs of the program's task,
                e.g. `question`.

        Returns:
            An object for each row: the fields of the answer, `sources` (ids of turns), `evidence`
            (what was recalled), and `failure`, which is None unless the model's answer could not
            be read.

        Raises:
            mlflow.exceptions.MlflowException: A row is wrong (400), or the model is not there
                (503).
        """
        plain_rows = _as_plain_json(rows)
        try:
            arguments_of_rows: list[dict[str, Any]] = []
            for number, row in enumerate(plain_rows, start=1):
                arguments_of_rows.append(_call_arguments(self.program, row, number))

            # A copy with an empty cache, so that requests share no memories.
            program = copy.copy(self.program)
            program.cache = MemoryCache()
            with dspy.context(
                lm=self.lm,
                adapter=program.current_adapter(),
                trace=None,
                disable_history=True,
                warn_on_type_mismatch=False,
            ):
                return gather(
                    [partial(_answer, program, arguments) for arguments in arguments_of_rows]
                )
        except MempilerError as error:
            raise _mlflow_error(error) from error


Served = ServedProgram
"""The name by which programs import this class that were registered before it was renamed."""


def _as_plain_json(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table as plain JSON values.

    Tables have arrays in the place of lists, and NaN in empty cells, which becomes None.
    """
    text = json.dumps(list(rows), default=_to_json_value)
    return json.loads(text, parse_constant=_none_for_constant)


def _to_json_value(value: Any) -> Any:
    """Return an array as a list, and any other value that JSON does not know as a text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def _none_for_constant(name: str) -> None:
    """Return None for NaN, Infinity and -Infinity."""
    return None


def _call_arguments(program: MemoryProgram, row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the arguments with which a program is called for a row.

    Raises:
        UserError: The row lacks something, or is malformed; the message has the row's number.
    """
    # Columns that a table leaves empty are missing.
    values = {name: value for name, value in row.items() if value is not None}
    history_fields = [name for name in HISTORY_FIELDS if name in values]
    if len(history_fields) != 1:
        actual = " and ".join(history_fields) or "neither"
        raise UserError(f"row {number}: give one of history and messages, not {actual}")

    inputs = {name: values[name] for name in program.task.inputs if name in values}
    try:
        history = History.parse(values[history_fields[0]], id=f"row-{number}")
        # Only to refuse inputs that are missing or malformed: the program makes this query itself.
        program.task.query(inputs, history.items, (), history.speakers)
    except UserError as error:
        raise UserError(f"row {number}: {error}") from error
    return {"history": history, **inputs}


def _answer(program: MemoryProgram, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Call a program for a row, and return its answer as JSON.

    Raises:
        EndpointError: The model could not be asked.
    """
    try:
        prediction = program(**arguments)
    except (AdapterParseError, LMError) as error:
        # The id of the history names the row.
        failure = failure_of(arguments["history"].id, error)
        # If the endpoint fails, it fails for the other rows too, and the caller may try again. Any
        # other failure is of this row alone.
        if failure.kind == "endpoint":
            reason = one_line(error, 300)
            raise EndpointError(f"the model could not be asked: {reason}") from error
        return {
            "answer": None,
            "sources": [],
            "evidence": [],
            "failure": failure.model_dump(mode="json"),
        }

    context: Context | None = prediction.get("context")
    sources: list[str] = []
    evidence: list[dict[str, Any]] = []
    if context:
        sources = list(context.sources)
        evidence = [hit.model_dump(mode="json") for hit in context.hits]

    answer = prediction.toDict()
    answer.pop("context", None)
    answer.pop("memory", None)
    return {**answer, "sources": sources, "evidence": evidence, "failure": None}


def _mlflow_error(error: MempilerError) -> Exception:
    """Return the error of MLflow for one of ours, by which it chooses the status."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import (
        INTERNAL_ERROR,
        INVALID_PARAMETER_VALUE,
        TEMPORARILY_UNAVAILABLE,
    )

    if isinstance(error, EndpointError):
        code = TEMPORARILY_UNAVAILABLE
    elif isinstance(error, UserError):
        code = INVALID_PARAMETER_VALUE
    else:
        code = INTERNAL_ERROR
    return MlflowException(str(error), code)
