"""Sampling by vLLM, through TRL: token ids go in, token ids and log-probabilities come out.

Prompts have our chat template. A vLLM server gets each call as it comes, and makes batches itself.
A vLLM engine in this process takes a batch at a time, as the local model does. What is sampled
depends on the seed of a call, in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspy.lm15 import TransportError

from ...errors import UserError
from ...text import one_line
from .batching import Batcher
from .model import LocalModel
from .sampling import Sample, Sampler, SampleRequest


def make_sampler(generation: Any, model: LocalModel) -> Sampler:
    """Return a sampler over TRL's `VLLMGeneration`.

    Args:
        generation: TRL's access to vLLM: to a server, or to an engine in this process.
        model: The model with the same weights, which knows the tokens that end a completion.

    Raises:
        UserError: vLLM runs in this process, and would spread its model over several.
    """
    if generation.mode == "server":
        return ServerSampler(generation.vllm_client, model)
    if generation.tensor_parallel_size > 1:
        raise UserError(
            "vLLM in this process takes vllm_tensor_parallel_size 1; use a server for more"
        )
    engine = ColocatedEngine(generation.llm, model)
    return Batcher[SampleRequest, Sample](engine.sample)


class ServerSampler:
    """Samples on a vLLM server, by TRL's client."""

    def __init__(self, client: Any, model: LocalModel) -> None:
        self.client = client
        self.model = model

    def call(self, row: SampleRequest) -> Sample:
        """Sample one completion.

        Raises:
            TransportError: The server does not answer.
        """
        prompt, temperature, max_tokens, seed = row
        try:
            output = self.client.generate(
                [list(prompt)],
                temperature=temperature,
                top_k=0,
                max_tokens=max_tokens,
                logprobs=0,
                generation_kwargs={"seed": seed, "stop_token_ids": sorted(self.model.ends)},
            )
        except Exception as error:  # TRL raises exceptions of no class of its own
            reason = one_line(error, 160)
            raise TransportError(
                f"{self.client.base_url}: vLLM does not sample: {reason}"
            ) from error

        # For one prompt there is one completion. At each token the client lists the
        # log-probabilities of the likeliest tokens: with logprobs=0, of the sampled one alone.
        (completion_ids,) = output["completion_ids"]
        (logprob_lists,) = output["logprobs"]
        logprobs = [logprob for (logprob,) in logprob_lists]
        return self.model.completion(prompt, completion_ids, logprobs)


class ColocatedEngine:
    """Samples batches by a vLLM engine in this process."""

    def __init__(self, llm: Any, model: LocalModel) -> None:
        self.llm = llm
        self.model = model

    def sample(self, rows: Sequence[SampleRequest]) -> list[Sample]:
        """Sample a completion for each row, as one batch."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        prompts: list[dict[str, list[int]]] = []
        sampling_params: list[SamplingParams] = []
        for prompt, temperature, max_tokens, seed in rows:
            prompts.append({"prompt_token_ids": list(prompt)})
            params = SamplingParams(
                temperature=temperature,
                max_tokens=max_tokens,
                seed=seed,
                top_k=0,  # all tokens may be drawn
                logprobs=0,  # that of the sampled token alone
                stop_token_ids=sorted(self.model.ends),
            )
            sampling_params.append(params)
        results = self.llm.generate(prompts, sampling_params, use_tqdm=False)

        samples: list[Sample] = []
        for row, result in zip(rows, results, strict=True):
            prompt = row[0]
            output = result.outputs[0]  # a prompt has one completion
            logprobs: list[float] = []
            for token, logprobs_by_token in zip(output.token_ids, output.logprobs, strict=True):
                logprobs.append(logprobs_by_token[token].logprob)
            samples.append(self.model.completion(prompt, output.token_ids, logprobs))
        return samples
