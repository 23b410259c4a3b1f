"""A transformers model with its tokenizer, which can be sampled, scored, trained and saved.

A model that was loaded in bfloat16 computes in bfloat16. Its trainable weights become float32 with
the first update, because in bfloat16 small steps would be rounded away. With LoRA only the adapter
is trainable.
"""

from __future__ import annotations

import copy
import hashlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...errors import UserError
from ..tokenizer_cache import clear_word_cache
from .batching import buckets, in_halves
from .chat import ChatMessage, encode_chat
from .fingerprint import Fingerprinter
from .loading import ModelSource, load, quiet
from .precision import autocast
from .sampling import Sample, SampleRequest, draw_completions
from .scoring import MAX_LOGITS, has_plain_logits, token_logprobs

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Parameter
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SMALL_MODEL = 50_000_000
"""Parameters below which one CPU thread is faster than several.

With 0.7 million parameters on two busy cores it was four times faster.
"""

MAX_NEW_TOKENS = 512
"""Tokens of an answer, if a call does not set its `max_tokens`."""

CACHED_PROMPTS = 128
"""Prompts that are kept as tokens: the rollouts of a group ask the same prompts."""

UNLIMITED_CONTEXT = 1 << 20
"""The context of a model that names no limit, in tokens."""


class _TextPair(NamedTuple):
    """The token ids of a prompt and of its completion."""

    prompt: Sequence[int]
    completion: Sequence[int]


class _ReferenceWeight(NamedTuple):
    """A trained weight and its value in the frozen reference."""

    parameter: Parameter
    reference: Tensor


class LocalModel:
    """A causal language model that can be sampled and trained in this process.

    Everything that uses the weights holds `lock`, so threads may share a model.

    Args:
        model: A transformers causal language model, or a peft model over one.
        tokenizer: Its tokenizer.
        name: How reports and errors name it.
    """

    origin: ModelSource | tuple[()] = ()
    """The arguments of `load`, with which another process can load the same model."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str = "local"
    ) -> None:
        import torch

        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name
        self.lock = threading.RLock()
        self.version = 0
        """Grows with every change of the weights."""
        self.half = any(p.dtype == torch.bfloat16 for p in model.parameters())
        """Whether the model computes in bfloat16."""
        self.sharded = False
        """Whether other processes hold parts of the weights, which cannot be read here then."""
        self.whole: dict[str, Tensor] | None = None
        """All weights of a sharded model, once they were collected."""

        self._fingerprinter = Fingerprinter()
        self._fingerprint: str | None = None
        self._reference: list[_ReferenceWeight] = []
        self._has_plain_logits: bool | None = None
        self._encode_chat = lru_cache(CACHED_PROMPTS)(partial(encode_chat, tokenizer))

        parameter_count = sum(p.numel() for p in model.parameters())
        if self.device.type == "cpu" and parameter_count < SMALL_MODEL:
            torch.set_num_threads(1)

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        device: str | None = None,
        lora: Mapping[str, Any] | None = None,
        seed: int = 0,
        dtype: str | None = None,
    ) -> LocalModel:
        """Load a model.

        Args:
            name_or_path: A folder in the format of transformers, or the id of a model of the
                Hugging Face hub.
            device: "cpu", "cuda" and so on. None takes a GPU if there is one.
            lora: Arguments of `peft.LoraConfig` for a new adapter, e.g. {"r": 16}; see
                `loading.with_lora`. With None, all weights are trained, or the adapter that the
                folder holds.
            seed: Decides the first weights of a new adapter.
            dtype: "float32" or "bfloat16", the format of the weights as they are loaded. None means
                float32 on a CPU and bfloat16 on a GPU.

        Raises:
            MissingDependencyError: torch, transformers or peft is not installed.
            UserError: There is no such model, here or on the hub, or no such dtype.
        """
        source = ModelSource(str(name_or_path), device, lora, seed, dtype)
        loaded = load(source)
        local_model = cls(loaded.model, loaded.tokenizer, source.name)
        local_model.origin = source
        return local_model

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        return next(self.model.parameters()).device

    @property
    def context(self) -> int:
        """The number of tokens that a prompt and its completion may have together."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        return int(limit) if limit else UNLIMITED_CONTEXT

    @property
    def ends(self) -> frozenset[int]:
        """The ids of the tokens that end a completion."""
        generation_config = getattr(self.model, "generation_config", None)
        end_ids: set[int] = set()
        for owner in (generation_config, self.model.config, self.tokenizer):
            value = getattr(owner, "eos_token_id", None)
            if isinstance(value, list | tuple):
                end_ids.update(value)
            elif value is not None:
                end_ids.add(int(value))
        return frozenset(end_ids)

    @property
    def pad(self) -> int:
        """The id of a token that fills short rows, where a mask hides it."""
        pad_id = cast("int | None", self.tokenizer.pad_token_id)
        if pad_id is None:
            return min(self.ends, default=0)
        return pad_id

    @property
    def fingerprint(self) -> str:
        """A digest of all weights, of how they are computed with, and of the tokenizer.

        The weights of a sharded model cannot be read, so after every change it gets a random
        fingerprint that no other weights have.
        """
        with self.lock:
            if self._fingerprint is None:
                self._fingerprint = self._compute_fingerprint()
            return self._fingerprint

    def _compute_fingerprint(self) -> str:
        if self.sharded:
            return hashlib.sha256(uuid.uuid4().bytes).hexdigest()
        return self._fingerprinter.fingerprint(self.model, self.tokenizer, self.ends, self.half)

    def updated(self) -> None:
        """Note that the weights have changed: they are a new version with another fingerprint."""
        with self.lock:
            self.version += 1
            self._fingerprint = None

    def encode(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the token ids of a prompt, ready for the model to answer; see `chat.encode_chat`.

        Args:
            messages: Each has a `role` and a `content`.
        """
        chat = tuple(ChatMessage(message["role"], message["content"]) for message in messages)
        return list(self._encode_chat(chat))

    def clear_prompts(self) -> None:
        """Drop the prompts that are kept as tokens, and the words that the tokenizer keeps."""
        self._encode_chat.cache_clear()
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            clear_word_cache(backend)

    def encode_completion(self, text: str) -> list[int]:
        """Return the token ids of an answer and the token that ends it, for training on texts.

        If the model has no such token, the ids end with the answer.
        """
        encoding: Any = self.tokenizer(text, add_special_tokens=False)
        ids = list[int](encoding["input_ids"])

        end_id = cast("int | None", self.tokenizer.eos_token_id)
        if end_id is None:
            # The configuration of the model may name some. Always take the same one.
            end_id = min(self.ends, default=None)
        if end_id is not None:
            ids.append(end_id)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a completion, without special tokens."""
        text = self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return cast(str, text)

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """Complete prompts, those of similar length in one batch.

        A completion ends at the latest where the context is full.

        Raises:
            UserError: A prompt is empty or fills the context.
        """
        import torch

        requests = [self._within_context(request) for request in requests]
        prompt_lengths = [len(request.prompt_ids) for request in requests]

        samples: dict[int, Sample] = {}
        with self.lock, torch.no_grad():
            for numbers in buckets(prompt_lengths, len(requests)):
                batch = [requests[number] for number in numbers]
                completions = draw_completions(self.model, batch, self.ends, self.pad, self.half)
                for number, completion in zip(numbers, completions, strict=True):
                    samples[number] = self.completion(
                        requests[number].prompt_ids, completion.token_ids, completion.logprobs
                    )
        return [samples[number] for number in range(len(requests))]

    def _within_context(self, request: SampleRequest) -> SampleRequest:
        """Return a request for at most the tokens that its prompt leaves room for."""
        length = len(request.prompt_ids)
        if not 0 < length < self.context:
            raise UserError(
                f"a prompt of {length} tokens does not fit {self.name}, which holds {self.context}"
            )
        room = self.context - length
        return request._replace(max_tokens=min(request.max_tokens, room))

    def completion(
        self, prompt: Sequence[int], ids: Sequence[int], values: Sequence[float]
    ) -> Sample:
        """Return sampled tokens as a `Sample`.

        Args:
            prompt: The token ids of the prompt.
            ids: The sampled token ids.
            values: The log-probability of each of them.
        """
        is_finished = bool(ids) and ids[-1] in self.ends
        text_ids = ids[:-1] if is_finished else ids
        return Sample(tuple(prompt), tuple(ids), tuple(values), self.decode(text_ids), is_finished)

    def logprobs(
        self,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
        reference: bool = False,
        batch: int = 32,
    ) -> list[list[float]]:
        """Return the log-probability of each token of each completion.

        Args:
            prompts: The token ids of the prompts.
            completions: The token ids of their completions.
            temperature: Divides the logits.
            reference: Whether to use the weights of the frozen reference.
            batch: The most rows of a forward pass. Where memory runs out, passes become smaller.

        Raises:
            UserError: There is no reference, or memory does not suffice for one row.
        """
        import torch

        pairs = [
            _TextPair(prompt, completion)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        lengths = [len(pair.prompt) + len(pair.completion) for pair in pairs]
        score_pairs = partial(self._pair_logprobs, temperature=temperature)

        # Rows of similar length share a pass, so the results come in another order than the rows.
        logprobs_by_row: dict[int, list[float]] = {}
        with self.lock, torch.no_grad(), self.use_reference(reference):
            for row_numbers in buckets(lengths, batch):
                pairs_of_pass = [pairs[row] for row in row_numbers]
                results = in_halves(score_pairs, pairs_of_pass)
                logprobs_by_row.update(zip(row_numbers, results, strict=True))
        return [logprobs_by_row[row] for row in range(len(pairs))]

    def _pair_logprobs(self, pairs: Sequence[_TextPair], temperature: float) -> list[list[float]]:
        """Score completions in one forward pass."""
        prompts = [pair.prompt for pair in pairs]
        completions = [pair.completion for pair in pairs]
        values, _ = self.token_logprobs(prompts, completions, temperature)
        return [
            row[: len(completion)]
            for row, completion in zip(values.tolist(), completions, strict=True)
        ]

    def token_logprobs(
        self,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """Score completions in one forward pass that gradients can flow through.

        Returns:
            Two tensors (rows, longest completion): log-probabilities, 0 where a row has no token,
            and a mask of 1 and 0.
        """
        # To save memory, the logits are computed `MAX_LOGITS` at a time, by the output layer alone.
        # Some models scale or cap what that layer returns; these compute all logits at once.
        max_logits = MAX_LOGITS if self._logits_come_from_output_layer() else None
        return token_logprobs(
            self.model,
            prompts,
            completions,
            temperature,
            self.pad,
            in_bfloat16=self.half,
            max_logits=max_logits,
        )

    def _logits_come_from_output_layer(self) -> bool:
        """Return whether the output layer alone makes the model's logits; tried out only once."""
        if self._has_plain_logits is None:
            # In the precision of all passes, because the logits are compared exactly.
            with autocast(self.device, self.half):
                self._has_plain_logits = has_plain_logits(self.model)
        return self._has_plain_logits

    def freeze_reference(self) -> None:
        """Keep a copy of the trained weights as they are now: the reference of the KL term."""
        with self.lock:
            self._reference = [
                _ReferenceWeight(parameter, parameter.detach().clone())
                for parameter in self._trained_weights().values()
            ]

    @contextmanager
    def use_reference(self, reference: bool) -> Iterator[None]:
        """Give the model the reference's weights inside the block; the caller holds the lock.

        Values are exchanged in place, because the shards of a sharded model are known by their
        memory.

        Args:
            reference: Without it, the model keeps its own weights.

        Raises:
            UserError: There is no reference.
        """
        if not reference:
            yield
            return
        if not self._reference:
            raise UserError(
                "the reference is not frozen yet; call freeze_reference() before the first update"
            )
        try:
            _swap_values(self._reference)
            yield
        finally:
            _swap_values(self._reference)

    def _trained_weights(self) -> dict[str, Parameter]:
        """Return the weights that are trained, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def parameters(self) -> list[Any]:
        """Turn the weights that are trained into float32, and return them."""
        with self.lock:
            parameters = list(self._trained_weights().values())
            for parameter in parameters:
                parameter.data = parameter.data.float()
            return parameters

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the trained weights on the CPU, by name."""
        with self.lock:
            return {name: p.detach().cpu().clone() for name, p in self._trained_weights().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Set the trained weights, in place, to those that `state` returned before.

        A weight gets the number format (dtype) that it had then.

        Raises:
            UserError: They are the weights of another model.
        """
        import torch

        with self.lock, torch.no_grad():
            weights = self._trained_weights()
            weight_shapes = {name: weight.shape for name, weight in weights.items()}
            state_shapes = {name: tensor.shape for name, tensor in state.items()}
            if weight_shapes != state_shapes:
                raise UserError(f"the weights are not those of {self.name}; load their own model")
            for name, weight in weights.items():
                weight.data = weight.data.to(state[name].dtype)
                weight.copy_(state[name])
            self.updated()

    def copy(self) -> LocalModel:
        """Return an independent copy: training one of the two does not change the other."""
        with self.lock:
            duplicate = LocalModel(copy.deepcopy(self.model), self.tokenizer, self.name)
            duplicate.half = self.half
            return duplicate

    def save(self, folder: str | Path) -> Path:
        """Write model and tokenizer into a folder in the format of transformers; return the folder.

        `load` reads it. With LoRA only the adapter is written, with the name of its base model,
        which has to stay where it is.
        """
        with self.lock, quiet():
            # `whole` is None unless the weights are sharded: then the model's own are written.
            self.model.save_pretrained(str(folder), state_dict=self.whole)
            self.tokenizer.save_pretrained(str(folder))
        return Path(folder)


def _swap_values(weights: Sequence[_ReferenceWeight]) -> None:
    """Exchange the values of the trained weights and of the reference, in place."""
    for weight in weights:
        current = weight.parameter.detach().clone()
        weight.parameter.data.copy_(weight.reference)
        weight.reference.copy_(current)
