"""The ledger of a run with workers, in a process of its own, which Ray starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import EndpointError
from .config import Workers
from .ledger import Ledger, LedgerEntry
from .ray_tasks import connect_ray

LEDGER_WAIT = 30.0
"""Seconds that the ledger may take to return an entry."""


@dataclass(frozen=True)
class RemoteLedger:
    """The ledger as the run and its workers see it; it can be sent to other processes."""

    actor: Any
    """Ray's handle of the process with the `Ledger`; Ray has no types."""

    @classmethod
    def start(cls, workers: Workers) -> RemoteLedger:
        """Start the process with the ledger. It takes no CPU from the workers."""
        ray = connect_ray(workers)
        return cls(ray.remote(num_cpus=0)(Ledger).remote())

    @property
    def is_connected(self) -> bool:
        """Whether Ray still runs in this process; it may have been shut down meanwhile."""
        import ray  # pyright: ignore[reportMissingImports]

        return ray.is_initialized()

    def record(self, worker: int, entry: LedgerEntry) -> None:
        """Store the entry of a worker, and wait until it is stored.

        Raises:
            EndpointError: The ledger's process is gone.
        """
        import ray  # pyright: ignore[reportMissingImports]
        from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

        try:
            ray.get(self.actor.record.remote(worker, entry))
        except RayError as error:
            raise EndpointError(_gone(error)) from error

    def last_entry(self, worker: int) -> LedgerEntry | None:
        """Return the last entry of a worker; None if it has made no call.

        Raises:
            EndpointError: The ledger's process is gone, or does not answer in time.
        """
        import ray  # pyright: ignore[reportMissingImports]
        from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

        try:
            return ray.get(self.actor.last_entry.remote(worker), timeout=LEDGER_WAIT)
        except RayError as error:
            raise EndpointError(_gone(error)) from error

    def end(self) -> None:
        """End the process with the ledger."""
        import ray  # pyright: ignore[reportMissingImports]

        ray.kill(self.actor)


def _gone(error: Exception) -> str:
    """Return the message about a ledger that cannot be reached."""
    return f"the process that keeps the budget of the workers is gone: {type(error).__name__}"
