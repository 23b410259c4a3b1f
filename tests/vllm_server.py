"""A stand-in for vLLM's server on this machine: a small model of transformers behind the interface that training uses.

It holds the real base model and reads pushed adapters from disk, so its log-probabilities are those of what was pushed.
It keeps the rules of vLLM (`entrypoints/openai/models/serving.py`, `entrypoints/openai/completion/protocol.py`):

    POST /v1/load_lora_adapter    404 without runtime updating; 400 without name or path, or a name that is loaded and
                                  no load_inplace; 404 for a path without an adapter; 500 above the highest rank
    POST /v1/unload_lora_adapter  404 for a name that is not loaded
    POST /v1/completions          404 for a model that is not loaded; 400 for logprobs that are no number, a prompt that
                                  is none, or one too long; token ids and log-probabilities only where asked for

As a server with a generation config does, it takes the likeliest token alone unless a request says otherwise. With
`stale`, it takes adapters and goes on with the one it had: what a mistake in pushing would look like. With `full`, it
refuses completions.
"""

from __future__ import annotations

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class VllmServer:
    """The server; it listens from `__enter__` on.

    Args:
        base: A LocalModel without an adapter.
        updating: Whether VLLM_ALLOW_RUNTIME_LORA_UPDATING is set.
        max_rank: As --max-lora-rank.
        mode: As --logprobs-mode.
        token_ids: Whether it knows `return_token_ids`; old versions do not.
    """

    def __init__(
        self,
        base: Any,
        updating: bool = True,
        max_rank: int = 16,
        mode: str = "processed_logprobs",
        token_ids: bool = True,
    ) -> None:
        self.base, self.updating, self.max_rank, self.mode, self.token_ids = base, updating, max_rank, mode, token_ids
        self.adapters: dict[str, Any] = {}
        self.stale = self.full = False
        self.refuse_after: int | None = None
        """Adapters after which no more are taken."""
        self.loaded: list[str] = []
        """The names of all adapters that were taken."""
        self.requests: list[dict[str, Any]] = []
        """The bodies of all completions that were asked for."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """What `--rollout-api-base` takes."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> VllmServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def load_lora_adapter(self, body: dict[str, Any]) -> tuple[int, Any]:
        name, path = body.get("lora_name"), body.get("lora_path")
        if not self.updating:
            return 404, {"detail": "Not Found"}
        if not name or not path:
            return _error(400, "Both 'lora_name' and 'lora_path' must be provided.")
        if name in self.adapters and not body.get("load_inplace"):
            return _error(400, f"The lora adapter '{name}' has already been loaded.")
        if not (Path(path) / "adapter_config.json").is_file():
            return _error(404, f"Loading lora {name} failed: No adapter found for {path}")
        rank = json.loads((Path(path) / "adapter_config.json").read_text(encoding="utf-8"))["r"]
        if rank > self.max_rank:
            return _error(500, f"LoRA rank {rank} is greater than max_lora_rank {self.max_rank}.")
        if self.refuse_after is not None and len(self.loaded) >= self.refuse_after:
            return _error(500, "CUDA out of memory")
        before = next(iter(self.adapters.values()), None)
        self.adapters[name] = before if self.stale and before is not None else self._read(path)
        self.loaded.append(name)
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def unload_lora_adapter(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = body.get("lora_name")
        if not self.updating:
            return 404, {"detail": "Not Found"}
        if name not in self.adapters:
            return _error(404, f"The lora adapter '{name}' cannot be found.")
        del self.adapters[name]
        return 200, f"Success: LoRA adapter '{name}' removed successfully."

    def completions(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append(body)
        if self.full:
            return _error(400, "the server is told to refuse")
        model = self.adapters.get(body.get("model", ""))
        if model is None:
            return _error(404, f"The model `{body.get('model')}` does not exist.")
        prompt, asked = body.get("prompt"), body.get("logprobs")
        if not isinstance(prompt, list) or not all(isinstance(token, int) for token in prompt) or not prompt:
            return _error(400, "Either prompt or prompt_embeds must be provided and non-empty.")
        if asked is not None and (not isinstance(asked, int) or asked < 0):
            return _error(400, "`logprobs` must be a positive value or -1.")
        most = body.get("max_tokens", 16)
        if len(prompt) + most > model.context:
            return _error(400, f"This model's maximum context length is {model.context} tokens.")
        plain = body.get("top_k") == 0 and body.get("top_p") == 1.0 and body.get("repetition_penalty") == 1.0
        heat = body.get("temperature", 1.0) if plain else 0.0
        [sample] = model.sample([prompt], heat, most, [body.get("seed") or 0])
        values = list(sample.logprobs)
        if self.mode == "raw_logprobs":
            values = model.logprobs([prompt], [sample.completion_ids])[0]
        choice: dict[str, Any] = {"index": 0, "text": sample.text, "logprobs": None, "token_ids": None}
        choice["finish_reason"] = "stop" if sample.finished else "length"
        if asked is not None:
            choice["logprobs"] = {"token_logprobs": values, "tokens": [], "top_logprobs": [], "text_offset": []}
        if body.get("return_token_ids") and self.token_ids:
            choice |= {"token_ids": list(sample.completion_ids), "prompt_token_ids": prompt}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(values), "total_tokens": 0}
        shared = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": body["model"]}
        return 200, {**shared, "choices": [choice], "usage": usage}

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, bytes, str]:
        """Status, body and type of an answer."""
        routes = {
            f"/v1/{name}": getattr(self, name) for name in ("load_lora_adapter", "unload_lora_adapter", "completions")
        }
        with self._lock:
            status, said = routes[path](body) if path in routes else (404, {"detail": "Not Found"})
        plain = isinstance(said, str)
        return status, (said if plain else json.dumps(said)).encode(), "text/plain" if plain else "application/json"

    def _read(self, path: str) -> Any:
        from mempiler.engines.local.loading import quiet
        from mempiler.engines.local.model import LocalModel
        from peft import PeftModel

        with quiet():
            adapted = PeftModel.from_pretrained(copy.deepcopy(self.base.model), path)
        return LocalModel(adapted, self.base.tokenizer, "served")


def _error(code: int, message: str) -> tuple[int, Any]:
    return code, {"error": {"message": message, "type": "Error", "param": None, "code": code}}


def _handler(server: VllmServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, said, kind = server.reply(self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    return Handler
