"""The adapter `auto`: it asks under a JSON schema where the endpoint takes one, else for headers.

The schema of the outputs is tried at the first request. What came of it is remembered for the
endpoint, the model and the outputs:

    adapter = AutoAdapter()
    program(history=history, question="Where does Ada live?")
    adapter.output_modes()      # {"openai/gpt-4.1-mini": {"answer 3f2a9c01": "schema"}}

Outputs that no strict schema describes are asked for in the chat layout, and so are all outputs of
models that run in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import dspy
from dspy.utils.exceptions import (
    LMInvalidRequestError,
    LMUnsupportedFeatureError,
    LMUnsupportedModelError,
)

from ..reading.failures import failure_kind
from ._correcting_adapter import CorrectingAdapter
from ._json_adapter import SchemaAdapter
from ._output_schema import output_schema, outputs_name

SCHEMA = "schema"
"""The output mode of an endpoint that takes the schema."""
CHAT = "chat"
"""The output mode of an endpoint that refused the schema."""
ANY_ADDRESS = ""
"""The address of a schema use that holds for a model at every address."""


class SchemaUse(NamedTuple):
    """A schema that is sent with requests to a model at an address."""

    model: str
    address: str
    """The URL of the endpoint; "" for the provider's own, and for any address."""
    outputs: str
    """The outputs by `outputs_name`."""


class SchemaTrial:
    """One request under a schema, and what came of it.

    Args:
        adapter: Makes the request.
        use: Which schema is sent where.
        accepted: Whether schemas are accepted, by use; shared by all trials of an adapter.
        was_accepted: Whether the endpoint accepted the schema before this request.
    """

    def __init__(
        self,
        adapter: SchemaAdapter,
        use: SchemaUse,
        accepted: dict[SchemaUse, bool],
        was_accepted: bool,
    ) -> None:
        self.adapter = adapter
        self._use = use
        self._accepted = accepted
        self._was_accepted = was_accepted

    def raise_unless_refusal(self, error: dspy.LMError) -> None:
        """Raise the error of a request, unless the endpoint may have refused the JSON schema.

        The schema is surely not the cause if the endpoint accepted it before, if the model is
        unknown, or if the prompt was too long. Otherwise this returns, and the caller asks
        again without the schema, since endpoints often do not say why they refused a request.
        """
        # `_was_accepted`: whether the endpoint had accepted the schema when this request began.
        accepts_schema = self._was_accepted
        # `_accepted` holds by use (schema and endpoint) what all threads have learned so far. It
        # is newer, since another thread may have got an answer in the meantime.
        if self._use in self._accepted:
            accepts_schema = self._accepted[self._use]

        is_unknown_model = isinstance(error, LMUnsupportedModelError)
        is_too_long = failure_kind(error) == "too-long"
        if accepts_schema or is_unknown_model or is_too_long:
            raise error

    def record_accepted(self) -> None:
        """Remember that the endpoint accepts the schema."""
        self._accepted[self._use] = True

    def record_refused(self) -> None:
        """Remember that the endpoint refuses the schema.

        Call this only after the same prompt was answered without the schema. This shows that the
        endpoint had not refused the prompt.
        """
        # `setdefault` changes nothing if another thread has recorded meanwhile that the endpoint
        # accepts the schema.
        self._accepted.setdefault(self._use, False)


class AutoAdapter(CorrectingAdapter):
    """Ask under a JSON schema of the outputs where the endpoint takes it, else in the chat layout.

    Which endpoints accept a schema is learned once for all threads and copies of an adapter.
    """

    def __init__(self) -> None:
        super().__init__()
        self._accepted: dict[SchemaUse, bool] = {}

    def output_modes(self) -> dict[str, dict[str, str]]:
        """Return by model how its outputs are asked for: by "schema" or in the "chat" layout.

        A model may accept the schema of one predictor and refuse another's, so it has an entry for
        each. The key of an entry is the names of the outputs and a digest of their schema.

        Example:
            {"openai/gpt-4.1-mini": {"answer 3f2a9c01": "schema", "facts 77e0b1d2": "chat"}}
        """
        modes: dict[str, dict[str, str]] = {}
        for use, is_accepted in sorted(self._accepted.items()):
            modes_of_model = modes.setdefault(use.model, {})
            modes_of_model[use.outputs] = SCHEMA if is_accepted else CHAT
        return modes

    def add_output_modes(self, modes: Mapping[str, Mapping[str, str]]) -> None:
        """Learn which models accept which schemas, so that this adapter does not try them again.

        Args:
            modes: The result of `output_modes` of another adapter: "schema" where a model accepted
                the schema of some outputs, and "chat" where it refused it.
        """
        for model, modes_of_model in modes.items():
            for outputs, mode in modes_of_model.items():
                # `output_modes` leaves out the address at which a model was asked. So what it says
                # is taken to hold for the model at any address.
                use = SchemaUse(model, ANY_ADDRESS, outputs)
                self._accepted[use] = mode == SCHEMA

    def __call__(
        self,
        lm: dspy.BaseLM,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        # `super().__call__` asks in the chat layout, and `trial.adapter` under a schema.
        trial = self._schema_trial(lm, signature)
        if trial is None:
            return super().__call__(lm, lm_kwargs, signature, demos, inputs)

        try:
            outputs = trial.adapter(lm, lm_kwargs, signature, demos, inputs)
        except (LMInvalidRequestError, LMUnsupportedFeatureError) as error:
            trial.raise_unless_refusal(error)
        else:
            trial.record_accepted()
            return outputs

        # An endpoint that answers the same prompt without the schema had refused the schema.
        outputs = super().__call__(lm, lm_kwargs, signature, demos, inputs)
        trial.record_refused()
        return outputs

    def _schema_trial(self, lm: dspy.BaseLM, signature: type[dspy.Signature]) -> SchemaTrial | None:
        """Return a request for the outputs under their JSON schema; None to ask without a schema.

        No schema is used for a model in this process, for outputs that no schema describes, and
        for an endpoint that refused the schema before.
        """
        if not _is_remote(lm):
            return None
        # Type checkers do not know that a signature can be a key of the cache of `output_schema`.
        hashable_signature: Any = signature
        schema = output_schema(hashable_signature)
        if schema is None:
            return None

        use = SchemaUse(lm.model, _address(lm), outputs_name(schema))
        accepted = self._accepted.get(use)
        if accepted is None:
            # What was learned from another adapter holds for the model at any address.
            accepted = self._accepted.get(use._replace(address=ANY_ADDRESS))

        # True and False were learned from earlier requests. None means that the schema was never
        # tried, so this request tries it.
        if accepted is False:
            return None
        was_accepted = accepted is True

        adapter = SchemaAdapter(schema, self._system_messages)
        adapter.corrections = self.corrections
        return SchemaTrial(adapter, use, self._accepted, was_accepted)


def _is_remote(lm: dspy.BaseLM) -> bool:
    """Return whether a model runs elsewhere, and not in this process."""
    engine = getattr(lm, "engine", None)
    # The engine of a remote model is the name of its provider, or has an address.
    return isinstance(engine, str) or hasattr(engine, "address")


def _address(lm: dspy.BaseLM) -> str:
    """Return the URL at which a model is asked; "" for the provider's own."""
    engine = getattr(lm, "engine", None)
    address = getattr(engine, "address", None)
    return str(address or lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or "")
