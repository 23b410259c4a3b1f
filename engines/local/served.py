"""Sampling by a vLLM server that holds the adapter as it is now, while the training stays in this process.

    step n ── adapter in FOLDER/NAME-n ── POST /v1/load_lora_adapter ──> vLLM ── POST /v1/completions ──> samples

The server has the base model and reads the adapter from disk, so the folder has to be one that it sees under the same
path. Every version gets a name of its own and the one before is unloaded: a request names the weights it wants, and
what vLLM keeps of prompts it has read (its prefix cache goes by the adapter's name) is never that of older weights.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve BASE --enable-lora --max-lora-rank 16 \
        --logprobs-mode processed_logprobs

Prompts go as token ids and come back as token ids with their log-probabilities. Filters and penalties that a server may
take from the model's generation config are switched off by name.

Followed: vLLM's pages "LoRA Adapters" (https://docs.vllm.ai/en/latest/features/lora/, "Dynamically serving LoRA
Adapters"), "OpenAI-Compatible Server" (`return_token_ids`, `logprobs`) and "Engine Arguments" (`--logprobs-mode`), its
source (`entrypoints/openai/models/serving.py`, `entrypoints/openai/completion/protocol.py`), and issue 42125 of
vllm-project/vllm on prefix caches after a reload under the same name.

Limits: an adapter only, not whole weights. The last version stays on the server after the training. Nothing of it was
run against vLLM itself; the tests have a stand-in that keeps the rules of its interface.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import EndpointError, UserError
from .capture import Sample

if TYPE_CHECKING:
    from .model import LocalModel

TIMEOUT = 600.0
"""Seconds for an answer: a full server lets requests wait."""
START = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve BASE --enable-lora --max-lora-rank"
"""How a server is started, up to the rank."""


class Served:
    """A server's copy of one model's adapter.

    Args:
        url: Address of the server, with /v1.
        folder: Where versions of the adapter are written to; the server reads them there.
    """

    def __init__(self, url: str, folder: str | Path) -> None:
        self.url, self.folder = url.rstrip("/"), Path(folder).absolute()
        self._prefix = f"mempiler-{uuid.uuid4().hex[:12]}"
        self._lock = threading.Lock()
        self._pushed: tuple[int, str] | None = None
        self._client: Any = None

    def another(self) -> Served:
        """The same server for another model."""
        return Served(self.url, self.folder)

    def follow(self, model: LocalModel) -> str:
        """Gives the server the weights of now, unless it has them.

        Returns:
            What the server calls them.

        Raises:
            EndpointError: It did not take them.
            UserError: The folder cannot be written.
        """
        with self._lock:
            with model.lock:
                version, before = model.version, self._pushed
                if before is not None and before[0] == version:
                    return before[1]
                name = f"{self._prefix}-{version}"
                self._write(model, self.folder / name)
            self._call("load_lora_adapter", name, _rank(model), lora_path=str(self.folder / name))
            self._pushed = version, name
            if before is not None:
                self._call("unload_lora_adapter", before[1], _rank(model))
                shutil.rmtree(self.folder / before[1], ignore_errors=True)
            return name

    def sample(self, model: LocalModel, prompt: tuple[int, ...], temperature: float, limit: int, seed: int) -> Sample:
        """One completion under the weights of now.

        Raises:
            EndpointError: The server does not answer, or not with token ids and their log-probabilities.
        """
        from openai import OpenAIError

        name = self.follow(model)
        # Without them vLLM takes what the model's generation config says, which is not what is trained.
        plain = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "stop_token_ids": sorted(model.ends)}
        try:
            done = self._server().completions.create(
                model=name,
                prompt=list(prompt),
                max_tokens=min(limit, model.context - len(prompt)),
                temperature=temperature,
                top_p=1.0,
                seed=seed,
                logprobs=1,
                extra_body={"return_token_ids": True, **plain},
            )
            choice = done.choices[0]
            ids = tuple(int(token) for token in choice.token_ids)
            values = tuple(float(value) for value in choice.logprobs.token_logprobs)
        except OpenAIError as error:
            raise EndpointError(f"{self.url}: no rollout from {name}: {_line(error)}") from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            told = "answers without token ids and log-probabilities; it has to be vLLM 0.10.2 or later"
            raise EndpointError(f"{self.url}: {told}") from error
        if len(ids) != len(values):
            raise EndpointError(f"{self.url}: {len(values)} log-probabilities for {len(ids)} tokens")
        finished = bool(ids) and ids[-1] in model.ends
        return Sample((), prompt, ids, values, model.decode(ids[:-1] if finished else ids), finished)

    def _write(self, model: LocalModel, path: Path) -> None:
        from .loading import quiet

        try:
            with quiet():
                model.model.save_pretrained(str(path))
        except Exception as error:  # safetensors has an error of its own for a full disk
            raise UserError(f"{path}: the adapter cannot be written: {_line(error)}") from error

    def _call(self, route: str, name: str, rank: int, **more: str) -> None:
        from openai import APIConnectionError, OpenAIError

        try:
            # Not twice: a server that took the name and then lost the line would refuse it.
            self._server().with_options(max_retries=0).post(f"/{route}", body={"lora_name": name, **more}, cast_to=str)
        except APIConnectionError as error:
            raise EndpointError(f"{self.url}: cannot be reached for the adapter: {_line(error)}") from error
        except OpenAIError as error:
            fix = f"the server has to see {self.folder} and to be started as {START} {rank}"
            raise EndpointError(f"{self.url}: {route} {name} was refused: {_line(error)}; {fix}") from error

    def _server(self) -> Any:
        if self._client is None:
            from openai import DefaultHttpxClient, OpenAI

            key, connections = os.environ.get("OPENAI_API_KEY") or "none", DefaultHttpxClient(timeout=TIMEOUT)
            self._client = OpenAI(base_url=self.url, api_key=key, max_retries=2, http_client=connections)
            # It refers to itself: left to the collector, its sockets might go before what closes them.
            weakref.finalize(self._client, connections.close)
        return self._client


def serve(model: LocalModel, url: str, folder: str | Path) -> None:
    """Lets a server sample a model from here on; it gets the adapter at once.

    Raises:
        EndpointError: The server did not take it.
        UserError: The model has no adapter, or the folder cannot be written.
    """
    if not hasattr(model.model, "disable_adapter"):
        raise UserError(f"{model.name}: rollouts from a server need an adapter, which is all it is sent; add --lora 16")
    model.served = Served(url, folder)
    model.served.follow(model)


def _rank(model: LocalModel) -> int:
    return max(int(config.r) for config in model.model.peft_config.values())


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
