"""Stand-ins for vLLM, which needs a GPU: a server of it, and its engine in this process.

Both sample a local model, and keep what they were asked.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

from mempiler.engines.local.sampling import Sample, SampleRequest


class SamplingModel:
    """What samples in the place of vLLM.

    Args:
        model: A local model with the weights that vLLM would have.
    """

    def __init__(self, model: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        """The settings of every completion that was asked for."""
        self.is_broken = False
        """Whether every request fails."""
        self._model = model

    def sample(self, prompt_ids: Sequence[int], settings: dict[str, Any]) -> Sample:
        """Return a completion of a prompt."""
        if self.is_broken:
            raise RuntimeError("vLLM is broken")
        self.requests.append(settings)
        request = SampleRequest(
            prompt_ids, settings["temperature"], settings["max_tokens"], settings["seed"]
        )
        (sample,) = self._model.sample([request])
        return sample


class FakeGeneration:
    """Stands for TRL's `VLLMGeneration`, by which a training reaches vLLM.

    Args:
        mode: "server" or "colocate".
        llm: The engine in this process.
        vllm_client: The client of a server.
    """

    tensor_parallel_size = 1

    def __init__(self, mode: str, llm: Any = None, vllm_client: Any = None) -> None:
        self.mode = mode
        self.llm = llm
        self.vllm_client = vllm_client
        self.synchronizations = 0
        """How often the weights were sent to vLLM."""

    def sync_weights(self) -> None:
        self.synchronizations += 1


class FakeEngine:
    """Stands for `vllm.LLM`, with dictionaries as sampling parameters."""

    def __init__(self, sampling_model: SamplingModel) -> None:
        self._sampling_model = sampling_model

    def generate(
        self, prompts: list[Any], sampling_params: list[dict[str, Any]], use_tqdm: bool
    ) -> list[Any]:
        results: list[Any] = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            sample = self._sampling_model.sample(prompt["prompt_token_ids"], params)
            logprobs: list[dict[int, Any]] = []
            for token_id, logprob in zip(sample.completion_ids, sample.logprobs, strict=True):
                # vLLM may list further tokens beside the one that was sampled.
                logprobs.append({0: None, token_id: SimpleNamespace(logprob=logprob)})
            output = SimpleNamespace(token_ids=sample.completion_ids, logprobs=logprobs)
            results.append(SimpleNamespace(outputs=[output]))
        return results


@contextmanager
def vllm_server(sampling_model: SamplingModel) -> Iterator[str]:
    """Run a server that answers as vLLM's, for the block; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_json(200, {"data": [{"id": "tiny"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                sample = sampling_model.sample(body["prompt"][0], body)
            except RuntimeError as error:
                self.send_json(400, {"error": str(error)})
            else:
                self.send_json(200, completion_body(body["prompt"][0], sample))

        def send_json(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def completion_body(prompt_ids: list[int], sample: Sample) -> dict[str, Any]:
    """Return the answer of vLLM's server to a request for one completion."""
    tokens = [f"token_id:{token_id}" for token_id in sample.completion_ids]
    top_logprobs = [
        {token: logprob} for token, logprob in zip(tokens, sample.logprobs, strict=True)
    ]
    choice = {
        "prompt_token_ids": prompt_ids,
        "token_ids": list(sample.completion_ids),
        "logprobs": {
            "tokens": tokens,
            "token_logprobs": list(sample.logprobs),
            "top_logprobs": top_logprobs,
        },
    }
    return {"choices": [choice]}
