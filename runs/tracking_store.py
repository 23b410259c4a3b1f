"""A run in an MLflow store, for what is logged there beyond numbers and files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Store:
    """Where a run is logged."""

    client: Any
    """An `MlflowClient` of the store."""
    uri: str
    experiment: str
    run_id: str

    @property
    def tracking(self) -> Any:
        """The store itself, which takes whole traces and records at once.

        MLflow's calls for these go to the store of the process, which need not be ours, or send span by span.
        """
        from mlflow.tracing.client import TracingClient

        return TracingClient(self.uri).store

    def tag(self, name: str, value: str) -> None:
        """Sets a tag of the run."""
        self.client.set_tag(self.run_id, name, value)


def plain_name(*parts: str) -> str:
    """A name of plain letters, as MLflow's registries ask for: parts are joined by dots."""
    return ".".join(re.sub(r"[^A-Za-z0-9_-]+", "-", part.replace(".", "-")).strip("-") or "-" for part in parts)
