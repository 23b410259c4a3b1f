"""What DSPy calls to train a local model: `finetune` and `reinforce`.

`finetune` trains a copy, so that the model a run started with can still be asked; `reinforce` updates the model in
place, since its completions have to come from the weights that learn (train a `LocalModel.copy()` to keep the start).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspy.clients.provider import Provider, TrainingJob
from dspy.clients.utils_finetune import TrainDataFormat, TrainingStatus

from ...errors import DataError, UserError
from .loading import with_lora
from .model import LocalModel
from .reinforce import LocalReinforceJob
from .settings import Finetuning
from .sft import Example, fit

Row = Mapping[str, Any]


class LocalTrainingJob(TrainingJob):
    """A fine-tuning in a thread of this process; its result is an LM over the trained copy, or what went wrong."""

    tuned: LocalModel | None = None

    def status(self) -> TrainingStatus:
        """The state of the job."""
        if not self.done():
            return TrainingStatus.running
        return TrainingStatus.failed if isinstance(self.result(), Exception) else TrainingStatus.succeeded


class LocalProvider(Provider):
    """Trains the model of one engine."""

    def __init__(self, model: LocalModel) -> None:
        super().__init__()
        self.finetunable = self.reinforceable = True
        self.model = model
        self.TrainingJob = LocalTrainingJob
        self.ReinforceJob = LocalReinforceJob

    @staticmethod
    def is_provider_model(model: str) -> bool:
        """Whether a model's name is that of a local one."""
        return model.startswith("local/")

    def finetune(  # pyright: ignore[reportIncompatibleMethodOverride]  # DSPy calls it on the instance
        self,
        job: TrainingJob,
        model: str,
        train_data: Sequence[Row],
        train_data_format: TrainDataFormat | str | None,
        train_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Fine-tunes a copy of the model on chats: the last message of each, by the assistant, is learned.

        Args:
            job: Gets the copy as `tuned`.
            model: Its name.
            train_data: Rows of {"messages": [{"role", "content"}, ...]}.
            train_data_format: CHAT or None.
            train_kwargs: See `settings.Finetuning`; with `output_dir` the copy is written there.

        Returns:
            The name of the trained copy, "local/" and its folder if it was written.

        Raises:
            UserError: A setting is unknown, there is nothing to learn from, or data is no chat.
        """
        if train_data_format not in (None, TrainDataFormat.CHAT, TrainDataFormat.CHAT.value):
            raise DataError(f"training data is {train_data_format!r}; the local engine fine-tunes on chat")
        settings = Finetuning.parse(train_kwargs)
        if not train_data:
            raise UserError(
                "fine-tuning has no example to learn from: no answer passed; raise --train, or start better"
            )
        tuned = self.model.copy()
        if settings.lora is not None:
            tuned.model = with_lora(tuned.model, {"r": settings.lora}, settings.seed)
        fit(tuned, [_example(row) for row in train_data], settings)
        tuned.name = f"{self.model.name}+{tuned.fingerprint[:8]}"
        if settings.output_dir:
            tuned.name = str(tuned.save(Path(settings.output_dir)))
        if isinstance(job, LocalTrainingJob):
            job.tuned = tuned
        return f"local/{tuned.name}"


def _example(row: Row) -> Example:
    try:
        *asked, answer = row["messages"]
        return [{"role": m["role"], "content": m["content"]} for m in asked], str(answer["content"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"a row of training data is no chat: {str(row)[:80]!r}") from error
