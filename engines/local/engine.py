"""The DSPy engine that samples a local model, and the language model made of both.

Calls of concurrent threads are sampled as one batch. What a call gets does not depend on its batch,
but on the weights, its prompt, its settings and its seed. The seed is `Config.seed`, which the
meter derives from a rollout id, or else the number of times that the prompt was sampled before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

from dspy.clients.provider import TrainingJob
from dspy.lm15 import ContextLengthError, Message, Request, Response, Usage, response_to_events

from ...records.shared_by_copies import SharedByCopies
from ..call_context import current_context
from ..metered_lm import MeteredLM, Metering
from . import processes
from .batching import WINDOW, Batcher
from .memory import release_memory
from .model import MAX_NEW_TOKENS, LocalModel
from .prompt_counts import PromptCounts
from .sampling import Sample, Sampler, SampleRequest, row_seed
from .sft import LocalProvider, finetuned
from .trainer import TrainingStart


class LocalEngine(SharedByCopies):
    """A DSPy engine that samples a local model.

    Args:
        model: The model.
        seed: Enters the seed of every call.
        window: Seconds that a batch waits for a further call.
    """

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = False
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens", "seed")
    seedable: ClassVar[bool] = True
    """`Config.seed` decides what is sampled."""

    def __init__(self, model: LocalModel, seed: int = 0, window: float = WINDOW) -> None:
        self.model = model
        self.seed = seed
        self.sampler: Sampler = Batcher[SampleRequest, Sample](model.sample, window)
        """Samples a completion for each call: by default the model, in batches."""
        self._prompt_counts = PromptCounts()

    @property
    def weights_version(self) -> str:
        """Identifies the current weights; it is part of the cache keys of memories and answers."""
        return self.model.fingerprint[:16]

    def complete(self, request: Request) -> Response:
        """Answer a request.

        Raises:
            ContextLengthError: The prompt fills the model's context.
        """
        prompt = tuple(self.model.encode(_chat_messages(request)))
        if len(prompt) >= self.model.context:
            raise ContextLengthError(
                f"{len(prompt)} tokens do not fit {self.model.name} ({self.model.context})"
            )

        temperature = request.config.temperature or 0.0
        sample = self.sampler.call(
            SampleRequest(
                prompt_ids=prompt,
                temperature=temperature,
                max_tokens=request.config.max_tokens or MAX_NEW_TOKENS,
                seed=self._sampling_seed(prompt, request.config.seed, temperature),
            )
        )

        # Training takes the sampled tokens and their log-probabilities from the running call.
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
        """Answer a request in one piece."""
        return iter(response_to_events(self.complete(request)))

    def clear(self) -> None:
        """Drop what is kept of prompts: the words of a forgotten user may be among them."""
        self._prompt_counts.clear()
        self.model.clear_prompts()

    def dump_state(self) -> dict[str, Any]:
        """Return where the model was loaded from; weights trained since are not part of it."""
        return {"name": self.model.name, "seed": self.seed}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> LocalEngine:
        """Load the model again from where `dump_state` says."""
        return cls(LocalModel.load(state["name"]), state["seed"])

    def _sampling_seed(
        self, prompt: tuple[int, ...], call_seed: int | None, temperature: float
    ) -> int:
        """Return the seed of what is sampled for a call.

        A call without a seed counts how often its prompt was sampled, so that a repeated call gets
        another completion. These counts are negative, apart from the seeds of calls.
        """
        if temperature <= 0:
            # Nothing is drawn.
            return 0
        if call_seed is not None:
            return row_seed(self.seed, prompt, call_seed)
        count = self._prompt_counts.add(prompt)
        return row_seed(self.seed, prompt, -count)


class LocalLM(MeteredLM):
    """A metered LM over a local engine. Fine-tuning it gives an LM over a trained copy."""

    def _run_finetune_job(self, job: TrainingJob) -> None:
        """Fine-tune a copy of the model; the job's result is an LM over it, or the error."""
        # DSPy's own method would keep the engine, and with it the old weights, under a new name.
        engine = cast(LocalEngine, self.engine)
        try:
            model = finetuned(
                engine.model, job.train_data or [], job.train_data_format, job.train_kwargs
            )
            lm = self.copy(model=f"local/{model.name}", engine=LocalEngine(model, engine.seed))
            job.set_result(lm)
        except Exception as error:
            # As in DSPy: the thread that waits for the result raises the exception.
            job.set_result(error)


def local_lm(
    model: LocalModel,
    metering: Metering | None = None,
    temperature: float = 0.0,
    max_tokens: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> LocalLM:
    """Return an LM over a model that is loaded already; several LMs may share a model.

    Args:
        model: The model.
        metering: How its calls are counted and limited.
        temperature: At 0 the likeliest tokens are taken.
        max_tokens: The most tokens of an answer; `MAX_NEW_TOKENS` if None.
        seed: Enters the seed of every call.
        **settings: Further arguments of `dspy.LM`.
    """
    settings.setdefault("cache", False)
    settings.setdefault("num_retries", 0)
    lm = LocalLM(
        f"local/{model.name}",
        metering,
        engine=LocalEngine(model, seed),
        provider=LocalProvider(),
        temperature=temperature,
        max_tokens=max_tokens or MAX_NEW_TOKENS,
        **settings,
    )
    lm.window = model.context
    return lm


def run_follower() -> bool:
    """Follow the training that another process leads, if torchrun started several.

    The leading process samples, rewards and trains. The others repeat each of its training steps on
    their own copy of the model, with their part of the rows.

    Returns:
        False at once if this process leads; True after the training if it follows.

    Raises:
        UserError: Another process has ended.
    """
    if processes.rank() == 0:
        return False
    processes.connect()
    _repeat_training(processes.receive_broadcast())
    return True


def follow_all() -> bool:
    """Do this process's part of all trainings, until the leading process calls `processes.dismiss`.

    Returns:
        False at once if this process leads; True after the last training if it follows.

    Raises:
        UserError: Another process has ended.
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


def _repeat_training(training: TrainingStart) -> None:
    """Follow a training: load the same model, and repeat what the leading process does with it.

    The leading process broadcasts each call of a method of its job, such as `step`. This process
    makes the same call on a job of its own, until the leading one calls `terminate`.
    """
    lm = local_lm(LocalModel.load(*training.origin))
    job = LocalProvider().ReinforceJob(lm, training.train_kwargs)
    processes.repeat(job)


def _chat_messages(request: Request) -> list[dict[str, str]]:
    """Return the messages of a request as text, the system message first if there is one."""
    system = request.system
    if system is not None and not isinstance(system, str):
        texts = [getattr(part, "text", None) or "" for part in system]
        system = "".join(texts)

    messages: list[dict[str, str]] = []
    if system:
        messages.append({"role": "system", "content": system})
    for message in request.messages:
        messages.append({"role": message.role, "content": message.text or ""})
    return messages
