"""Rollouts by vLLM, through TRL: token ids go in, ids and log-probabilities come out, under our chat template.

A server gets each call as it comes, and batches by itself. An engine in this process takes a batch at a time, as the
model here does. What is sampled depends on the seed of a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspy.lm15 import TransportError

from ...errors import UserError
from ...text import one_line
from .batching import Batcher
from .model import LocalModel
from .sampling import Sample, SampleRequest


def sampler(generation: Any, model: LocalModel) -> Any:
    """What samples in the place of the model: for a `trl` VLLMGeneration in server mode, or colocated.

    Raises:
        UserError: Colocated, a model is spread over several processes.
    """
    if generation.mode == "server":
        return ServerSampler(generation.vllm_client, model)
    if generation.tensor_parallel_size > 1:
        raise UserError("vLLM in this process takes vllm_tensor_parallel_size 1; use a server for more")
    return Batcher[SampleRequest, Sample](lambda rows: _colocated(generation.llm, model, rows))


class ServerSampler:
    """Samples on a vLLM server, by TRL's client."""

    def __init__(self, client: Any, model: LocalModel) -> None:
        self.client, self.model = client, model

    def call(self, row: SampleRequest) -> Sample:
        """Samples one completion.

        Raises:
            TransportError: The server does not answer.
        """
        prompt, heat, limit, seed = row
        how = {"seed": seed, "stop_token_ids": sorted(self.model.ends)}
        asked = {"temperature": heat, "top_k": 0, "max_tokens": limit, "logprobs": 0, "generation_kwargs": how}
        try:
            found = self.client.generate([list(prompt)], **asked)
        except Exception as error:  # TRL raises bare ones
            raise TransportError(f"{self.client.base_url}: vLLM does not sample: {one_line(error, 160)}") from error
        (ids,), (values,) = found["completion_ids"], found["logprobs"]
        return self.model.completion(prompt, ids, [value for (value,) in values])


def _colocated(llm: Any, model: LocalModel, rows: Sequence[SampleRequest]) -> list[Sample]:
    from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

    how = {"top_k": 0, "logprobs": 0, "stop_token_ids": sorted(model.ends)}
    params = [SamplingParams(temperature=heat, max_tokens=limit, seed=seed, **how) for _, heat, limit, seed in rows]
    prompts = [{"prompt_token_ids": list(row[0])} for row in rows]
    outputs = [found.outputs[0] for found in llm.generate(prompts, params, use_tqdm=False)]
    values = [[each[token].logprob for token, each in zip(one.token_ids, one.logprobs, strict=True)] for one in outputs]
    found = zip(rows, outputs, values, strict=True)
    return [model.completion(row[0], one.token_ids, each) for row, one, each in found]
