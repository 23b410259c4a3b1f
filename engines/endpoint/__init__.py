"""Endpoints of language models and embedders: one event loop in one thread asks them all.

The way of one call, from the thread that waits for the answer to the server:

    Engine.complete(request)               engine.py          waits for the loop, until the deadline
      with_retries(...)                    retry.py           asks again while the endpoint is busy
        Client.complete(request)           client.py          one attempt, whole or in pieces
          the provider's client            `dspy.lm15` or litellm: its form of request and answer
            UsageFilter.stream(request)    reported_usage.py  drops usage that cannot be read
              Transport.stream(request)    transport.py       HTTP, bounded in bytes and in silence

`loop` is that event loop, `errors` has what goes wrong. `relay` hands requests on as they are.
"""

from __future__ import annotations

from .remote_engine import RemoteEngine
from .waits import DEADLINE, RETRIES, TIMEOUT, Waits

__all__ = ["DEADLINE", "RETRIES", "TIMEOUT", "RemoteEngine", "Waits"]
