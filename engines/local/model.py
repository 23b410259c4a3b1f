"""One transformers model with its tokenizer: sampling with log-probabilities, scoring, state, saving.

A model that was loaded as bfloat16 computes in bfloat16; the first update turns its trainable weights into float32, for
small steps would be rounded away otherwise. With LoRA only the adapter is trainable.
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
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..tokenizer_cache import clear_word_cache
from .batching import buckets, in_halves
from .fingerprint import frozen_tensors, settings_digest, tensors_digest
from .precision import autocast
from .sampling import Sample, SampleRequest, draw_completions
from .scoring import MAX_LOGITS, has_plain_logits, token_logprobs

if TYPE_CHECKING:
    from torch import Tensor

TINY = 50_000_000
"""Parameters below which one CPU thread is faster than several (0.7M parameters, two busy cores: four times)."""
MAX_NEW_TOKENS = 512
PROMPTS = 128
"""Prompts whose tokens are kept: the rollouts of a group ask the same."""
_SHOWN = "mark7"


class LocalModel:
    """A causal language model that can be sampled and trained in this process.

    Everything that touches the weights holds `lock`, so a model may be shared by threads.

    Args:
        model: A transformers causal language model, or a peft model over one.
        tokenizer: Its tokenizer.
        name: What reports call it.
    """

    origin: tuple[Any, ...] = ()
    """What `load` was given, for another process to load the same."""

    def __init__(self, model: Any, tokenizer: Any, name: str = "local") -> None:
        import torch

        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.lock = threading.RLock()
        self.version = 0
        """Grows with every change of the weights."""
        self._fingerprint: tuple[int, str] | None = None
        """The version of the weights whose fingerprint is known, and that."""
        self._frozen_digest: tuple[tuple[str, ...], bytes] | None = None
        """The names of the weights that are trained, and the digest of everything else."""
        self.sharded = False
        """Whether other processes have parts of the weights, which then cannot be read here."""
        self.whole: Mapping[str, Tensor] | None = None
        """All weights of a sharded model, where they were collected."""
        self._reference: list[tuple[Any, Tensor]] = []
        self._plain: bool | None = None
        self._prompt_ids = lru_cache(PROMPTS)(partial(_prompt_ids, tokenizer))
        self.half = any(p.dtype == torch.bfloat16 for p in model.parameters())
        """Whether it computes in bfloat16."""
        if self.device.type == "cpu" and sum(p.numel() for p in model.parameters()) < TINY:
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
        """Loads a model.

        Args:
            name_or_path: A folder in the format of transformers, or the id of a model of the Hugging Face hub.
            device: "cpu", "cuda", ...; a GPU where there is one if None.
            lora: Arguments of `peft.LoraConfig` (e.g. {"r": 16}) for a new adapter; every linear layer gets one unless
                `target_modules` says otherwise, and `lora_alpha` is twice the rank. None trains all weights, or the
                adapter that the folder holds.
            seed: Of the new adapter's weights.
            dtype: "float32" or "bfloat16": of the weights as they are loaded; bfloat16 on a GPU, else float32 if None.

        Raises:
            MissingDependencyError: torch, transformers or peft is not installed.
            UserError: There is no such model, here or on the hub, or no such dtype.
        """
        from .loading import load

        model, tokenizer = load(str(name_or_path), device, lora, seed, dtype)
        made = cls(model, tokenizer, str(name_or_path))
        made.origin = (str(name_or_path), device, lora, seed, dtype)
        return made

    @property
    def device(self) -> Any:
        """The torch device of the weights."""
        return next(self.model.parameters()).device

    @property
    def context(self) -> int:
        """Tokens that a prompt and its completion may have together."""
        found = getattr(self.model.config, "max_position_embeddings", None)
        return int(found) if found else 1 << 20

    @property
    def ends(self) -> frozenset[int]:
        """Token ids that end a completion."""
        found: set[int] = set()
        config = getattr(self.model, "generation_config", None)
        for owner in (config, self.model.config, self.tokenizer):
            ids = getattr(owner, "eos_token_id", None)
            found |= set(ids) if isinstance(ids, list | tuple) else set() if ids is None else {int(ids)}
        return frozenset(found)

    @property
    def pad(self) -> int:
        """A token id to fill rows with; the mask hides it."""
        found = self.tokenizer.pad_token_id
        return int(found) if found is not None else min(self.ends, default=0)

    @property
    def fingerprint(self) -> str:
        """A digest of all weights, of how they are computed with, and of the tokenizer.

        Of a sharded model it is a name that no other weights have.
        """
        with self.lock:
            if self._fingerprint is None or self._fingerprint[0] != self.version:
                self._fingerprint = (self.version, self._compute_fingerprint())
            return self._fingerprint[1]

    def _compute_fingerprint(self) -> str:
        if self.sharded:
            return hashlib.sha256(uuid.uuid4().bytes).hexdigest()
        trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}

        # What is not trained stays as it is: a large base model is looked at once, not after every update.
        names = tuple(trainable)
        if self._frozen_digest is None or self._frozen_digest[0] != names:
            frozen = tensors_digest(frozen_tensors(self.model, names))
            settings = settings_digest(self.model, self.tokenizer, self.ends)
            self._frozen_digest = (names, frozen + settings)

        digest = hashlib.sha256(self._frozen_digest[1])
        digest.update(b"bfloat16" if self.half else b"float32")
        digest.update(tensors_digest(trainable))
        return digest.hexdigest()

    def updated(self) -> None:
        """Notes that the weights have changed: a new version."""
        with self.lock:
            self.version += 1

    def encode(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a prompt, ready for the model to answer.

        By the tokenizer's chat template, with its generation prompt and, where the template knows the choice, without
        thinking. Where the template has no system role, that text comes first in the user's first message. A tokenizer
        without a template gets each message as a line `role: content`, and a last line `assistant:`.
        """
        return list(self._prompt_ids(tuple((message["role"], message["content"]) for message in messages)))

    def clear_prompts(self) -> None:
        """Drop the prompts whose tokens are kept, and the words that the tokenizer keeps."""
        self._prompt_ids.cache_clear()
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            clear_word_cache(backend)

    def encode_completion(self, text: str) -> list[int]:
        """Token ids of an answer, with the token that ends it: for training on texts."""
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token_id
        if end is None:
            end = min(self.ends, default=None)
        return ids if end is None else [*ids, end]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a completion, without special tokens."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def sample(self, rows: Sequence[SampleRequest]) -> list[Sample]:
        """Completes prompts, those of similar length as one batch; answers end where the context is full.

        Raises:
            UserError: A prompt is empty, or fills the context.
        """
        import torch

        requests = [self._within_context(request) for request in rows]
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
        """Return a request with no more tokens than its prompt leaves room for."""
        length = len(request.prompt_ids)
        if not 0 < length < self.context:
            raise UserError(
                f"a prompt of {length} tokens does not fit {self.name}, which holds {self.context}"
            )
        room = self.context - length
        return request._replace(max_tokens=min(request.max_tokens, room))

    def completion(self, prompt: Sequence[int], ids: Sequence[int], values: Sequence[float]) -> Sample:
        """Tokens that were sampled, with their log-probabilities, as a sample."""
        finished = bool(ids) and ids[-1] in self.ends
        text = self.decode(ids[:-1] if finished else ids)
        return Sample(tuple(prompt), tuple(ids), tuple(values), text, finished)

    def logprobs(
        self,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
        reference: bool = False,
        batch: int = 32,
    ) -> list[list[float]]:
        """Log-probability of each token of each completion at a temperature, by the frozen reference if that is wanted.

        A forward pass takes `batch` rows at most, fewer where memory runs out.

        Raises:
            UserError: There is no reference, or memory does not suffice for one row.
        """
        import torch

        def scored(rows: Sequence[int]) -> list[list[float]]:
            answers = [completions[n] for n in rows]
            found, _ = self.token_logprobs([prompts[n] for n in rows], answers, temperature)
            return [values[: len(ids)] for values, ids in zip(found.tolist(), answers, strict=True)]

        done: dict[int, list[float]] = {}
        lengths = [len(prompt) + len(answer) for prompt, answer in zip(prompts, completions, strict=True)]
        with self.lock, torch.no_grad(), self.use_reference(reference):
            for rows in buckets(lengths, batch):
                done |= zip(rows, in_halves(scored, rows), strict=True)
        return [done[n] for n in range(len(prompts))]

    def token_logprobs(
        self,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """The same in one pass as tensors that gradients flow through, and a mask; both (rows, longest completion)."""
        if self._plain is None:
            with autocast(self.device, self.half):
                self._plain = has_plain_logits(self.model)
        return token_logprobs(
            self.model,
            prompts,
            completions,
            temperature,
            self.pad,
            in_bfloat16=self.half,
            max_logits=MAX_LOGITS if self._plain else None,
        )

    def freeze_reference(self) -> None:
        """Keeps a copy of the weights that are trained, as they are now: the reference of the KL term."""
        with self.lock:
            self._reference = [(p, p.detach().clone()) for p in self.model.parameters() if p.requires_grad]

    @contextmanager
    def use_reference(self, reference: bool) -> Iterator[None]:
        """The model has the reference's weights inside, if they are wanted; the caller holds the lock.

        They are exchanged in place: of a sharded model the shards are known by their memory.

        Raises:
            UserError: There is no reference.
        """
        if reference and not self._reference:
            raise UserError("the reference is not frozen yet; call freeze_reference() before the first update")
        exchanged = self._reference if reference else []
        try:
            _exchange(exchanged)
            yield
        finally:
            _exchange(exchanged)

    def parameters(self) -> list[Any]:
        """The trainable weights, as float32 from here on."""
        with self.lock:
            found = [p for p in self.model.parameters() if p.requires_grad]
            for parameter in found:
                parameter.data = parameter.data.float()
            return found

    def state(self) -> dict[str, Tensor]:
        """A copy of the trainable weights, on the CPU."""
        with self.lock:
            named = self.model.named_parameters()
            return {name: p.detach().cpu().clone() for name, p in named if p.requires_grad}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts weights back that `state` gave.

        Raises:
            UserError: They are those of another model.
        """
        import torch

        with self.lock, torch.no_grad():
            own = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
            shapes, given = ({name: p.shape for name, p in each.items()} for each in (own, state))
            if shapes != given:
                raise UserError(f"the weights are not those of {self.name}; load their own model")
            for name, parameter in own.items():
                parameter.data = parameter.data.to(state[name].dtype)
                parameter.copy_(state[name])
            self.updated()

    def copy(self) -> LocalModel:
        """An independent copy of the model: training one does not change the other."""
        with self.lock:
            found = LocalModel(copy.deepcopy(self.model), self.tokenizer, self.name)
            found.half = self.half
            return found

    def save(self, folder: str | Path) -> Path:
        """Writes the model for `load`, in the format of transformers.

        With LoRA only the adapter is written, beside the name of its base model, which has to stay where it is.
        """
        from .loading import quiet

        with self.lock, quiet():
            self.model.save_pretrained(str(folder), state_dict=self.whole)
            self.tokenizer.save_pretrained(str(folder))
        return Path(folder)


def _exchange(pairs: Sequence[tuple[Any, Tensor]]) -> None:
    for one, other in pairs:
        kept = one.detach().clone()
        one.data.copy_(other)
        other.copy_(kept)


def _prompt_ids(tokenizer: Any, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
    if not getattr(tokenizer, "chat_template", None):
        text = "".join(f"{role}: {content}\n" for role, content in messages) + "assistant:"
        return tuple(tokenizer(text)["input_ids"])
    told = [{"role": role, "content": content} for role, content in messages]
    if told[0]["role"] == "system" and not _shows_system(tokenizer):
        first, *rest = told[1:] or [{"content": ""}]
        told = [{"role": "user", "content": f"{told[0]['content']}\n\n{first['content']}".strip()}, *rest]
    how = {"add_generation_prompt": True, "return_dict": False, "enable_thinking": False}
    return tuple(int(token) for token in tokenizer.apply_chat_template(told, tokenize=True, **how))


def _shows_system(tokenizer: Any) -> bool:
    """Whether a chat template shows what a system message says, rather than refusing or dropping it."""
    from jinja2 import TemplateError

    asked = [{"role": "system", "content": _SHOWN}, {"role": "user", "content": "x"}]
    try:
        return _SHOWN in tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    except TemplateError:
        return False
