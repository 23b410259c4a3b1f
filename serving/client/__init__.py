"""Clients of a service, which need none of the packages that run a model."""

from .async_client import AsyncClient
from .client import Client

__all__ = ["AsyncClient", "Client"]
