"""Embedding models behind an address: any OpenAI-compatible server, and whatever litellm reaches by its name.

Both clients are imported, and keys looked for, with the first text. Errors of both become ours, in one line.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import EndpointError, MempilerError, UserError

BATCH = 64
"""Texts per request to an endpoint."""
RETRIES = 3
"""Further attempts of the client library when an endpoint is busy or away."""

Compute = Callable[[Sequence[str]], np.ndarray]
"""Embeds distinct texts, none of them blank, as [n, dimension]."""


def openai_compatible(name: str, base: str | None) -> Compute:
    """Asks an OpenAI-compatible server, OpenAI itself where no address is given.

    Args:
        name: Of the model, with `openai/` or without.
        base: Address, up to and including its /v1.
    """
    model = name.removeprefix("openai/")

    @lru_cache(maxsize=1)
    def client() -> Any:
        import openai

        key = os.environ.get("OPENAI_API_KEY")
        if not key and not base:
            raise UserError(
                f"embedder {name!r} needs a key; set OPENAI_API_KEY, or give the api_base of another server"
            )
        # Servers of one's own mostly want no key, but the client insists on one.
        connections = openai.DefaultHttpxClient()
        made = openai.OpenAI(base_url=base, api_key=key or "none", max_retries=RETRIES, http_client=connections)
        # It refers to itself: left to the collector, its sockets might go before what closes them.
        weakref.finalize(made, connections.close)
        return made

    def compute(texts: Sequence[str]) -> np.ndarray:
        request = client().embeddings.create
        return _batches(name, texts, lambda batch: request(model=model, input=batch, encoding_format="float").data)

    return compute


def any_litellm(name: str) -> Compute:
    """Asks any embedding model of litellm by its name."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        # At import litellm otherwise fetches its price list from the network.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm

        # It otherwise prints advertisements to stdout with every error.
        litellm.suppress_debug_info = True
        request: Callable[..., Any] = litellm.embedding
        try:
            return _batches(name, texts, lambda batch: request(model=name, input=batch, max_retries=RETRIES).data)
        except MempilerError as error:
            # Asked only now: some providers take credentials from elsewhere, such as AWS profiles.
            missing = litellm.validate_environment(name)["missing_keys"]
            if missing:
                raise UserError(f"{error}; set {' or '.join(missing)} if the key is what is missing") from error
            raise

    return compute


def _batches(name: str, texts: Sequence[str], request: Callable[[list[str]], Any]) -> np.ndarray:
    """Asks for `BATCH` texts at a time; errors of both clients (litellm's derive from openai's) become ours."""
    import openai

    rows: list[Any] = []
    try:
        for start in range(0, len(texts), BATCH):
            data = request(list(texts[start : start + BATCH]))
            plain = [row if isinstance(row, dict) else row.model_dump() for row in data]
            rows += [row["embedding"] for row in sorted(plain, key=lambda row: row["index"])]
        return np.array(rows, dtype=np.float32)
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise UserError(f"embedder {name!r}: the key was refused; check OPENAI_API_KEY or the provider's") from error
    except (openai.BadRequestError, openai.NotFoundError) as error:
        raise UserError(f"embedder {name!r} was refused, check its name: {_one_line(error)}") from error
    except openai.OpenAIError as error:
        raise EndpointError(f"embedder {name!r}: {_one_line(error)}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EndpointError(f"embedder {name!r} answered no list of vectors: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
