"""The DSPy engine over a local model, and the LM made of both; calls of concurrent threads are sampled as one batch.

What a call gets depends on the weights, its prompt, its seed and its settings, not on its batch: `Config.seed` (the
meter derives one from a rollout id) or else the number of times the prompt was sampled before enters the seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dspy.clients.provider import TrainingJob
from dspy.lm15 import ContextLengthError, Message, Request, Response, Usage, response_to_events

from ...records.shared_by_copies import SharedByCopies
from ..call_context import current_context
from ..meter import Meter, MeteredLM
from . import processes
from .batching import WINDOW, Batcher
from .memory import release_memory
from .model import MAX_NEW_TOKENS, LocalModel
from .prompt_counts import PromptCounts
from .sampling import Sample, SampleRequest, row_seed
from .sft import LocalProvider, finetuned


class LocalEngine(SharedByCopies):
    """A DSPy engine that samples a local model; a batch waits `window` seconds for further calls."""

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = False
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens", "seed")
    seedable: ClassVar[bool] = True
    """`Config.seed` decides what is sampled."""

    def __init__(self, model: LocalModel, seed: int = 0, window: float = WINDOW) -> None:
        self.seed, self.model = seed, model
        self.sampler: Any = Batcher[SampleRequest, Sample](model.sample, window)
        """What samples: its `call` takes one row; by default the model, in batches."""
        self._prompt_counts = PromptCounts()

    @property
    def weights_version(self) -> str:
        """Identifies the current weights; part of the cache keys of memories and answers."""
        return self.model.fingerprint[:16]

    def complete(self, request: Request) -> Response:
        """Answers one request.

        Raises:
            ContextLengthError: The prompt fills the model's context.
        """
        prompt = tuple(self.model.encode(_messages(request)))
        if len(prompt) >= self.model.context:
            raise ContextLengthError(f"{len(prompt)} tokens do not fit {self.model.name} ({self.model.context})")
        config = request.config
        heat = config.temperature or 0.0
        row = SampleRequest(prompt, heat, config.max_tokens or MAX_NEW_TOKENS, self._seed(prompt, config.seed, heat))
        sample = self.sampler.call(row)
        call = current_context().running_call
        if call is not None:
            call.samples.append(sample)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(sample.text),
            finish_reason="stop" if sample.finished else "length",
            usage=Usage(input_tokens=len(prompt), output_tokens=len(sample.completion_ids)),
        )

    def stream(self, request: Request) -> Iterator[Any]:
        """Answers one request, in one piece."""
        return iter(response_to_events(self.complete(request)))

    def clear(self) -> None:
        """Drop what is kept of prompts: a forgotten user's words may be among them."""
        self._prompt_counts.clear()
        self.model.clear_prompts()

    def dump_state(self) -> dict[str, Any]:
        """Where the model was loaded from; weights trained since are not part of it."""
        return {"name": self.model.name, "seed": self.seed}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> LocalEngine:
        """Loads the model anew."""
        return cls(LocalModel.load(state["name"]), state["seed"])

    def _seed(self, prompt: tuple[int, ...], seed: int | None, temperature: float) -> int:
        if temperature <= 0:
            return 0
        if seed is not None:
            return row_seed(self.seed, prompt, seed)
        return row_seed(self.seed, prompt, -self._prompt_counts.add(prompt))


class LocalLM(MeteredLM):
    """A metered LM over a local engine; fine-tuning it gives an LM over a trained copy of its model."""

    def _run_finetune_job(self, job: TrainingJob) -> None:
        # DSPy would keep the engine, and so the old weights, under a new name.
        now: Any = self.engine
        try:
            tuned = finetuned(now.model, job.train_data or [], job.train_data_format, job.train_kwargs)
            job.set_result(self.copy(model=f"local/{tuned.name}", engine=LocalEngine(tuned, now.seed)))
        except Exception as error:
            # As in DSPy: the thread that waits for the result raises the exception.
            job.set_result(error)


def local_lm(
    model: LocalModel,
    meter: Meter | None = None,
    temperature: float = 0.0,
    max_tokens: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> LocalLM:
    """An LM over a model that is loaded already; several may share one model.

    The seed enters that of every call; `settings` is what else `MeteredLM` takes: role, guard, answers, prices.
    """
    made = LocalLM(
        f"local/{model.name}",
        meter or Meter(),
        engine=LocalEngine(model, seed),
        provider=LocalProvider(),
        temperature=temperature,
        max_tokens=max_tokens or MAX_NEW_TOKENS,
        **{"cache": False, "num_retries": 0, **settings},
    )
    made.window = model.context
    return made


def run_follower() -> bool:
    """Do this process's part of a training, unless it is the first one of the training; see `processes`.

    Returns:
        Whether it is not the first one, and has done its part.

    Raises:
        UserError: Another process has ended.
    """
    if processes.rank() == 0:
        return False
    processes.connect()
    _repeat_training(processes.receive_broadcast())
    return True


def follow_all() -> bool:
    """Do this process's part of one training after the other, until the first process calls `processes.dismiss`.

    Returns and raises as `run_follower`.
    """
    if processes.rank() == 0:
        return False
    for number in itertools.count(1):
        processes.connect(number)
        training = processes.receive_broadcast()
        if training is None:
            break
        _repeat_training(training)
        release_memory()
    processes.leave()
    return True


def _repeat_training(training: tuple[Any, dict[str, Any]]) -> None:
    """Repeat what the first process does, on a model that is loaded from the same place."""
    origin, train_kwargs = training
    lm = local_lm(LocalModel.load(*origin))
    processes.repeat(LocalProvider().ReinforceJob(lm, train_kwargs))


def _messages(request: Request) -> list[dict[str, str]]:
    system = request.system
    if system is not None and not isinstance(system, str):
        system = "".join(getattr(part, "text", None) or "" for part in system)
    found = [{"role": "system", "content": system}] if system else []
    return [*found, *({"role": m.role, "content": m.text or ""} for m in request.messages)]
