"""Fine-tuning learns the calls of answers that passed, and no others."""

from typing import Any

import dspy
import pytest
from dspy.clients.provider import Provider, TrainingJob
from mempiler.optimizers.passed_finetune import PassedFinetune


class RecordingProvider(Provider):
    """A provider that keeps the training data of each job, and trains nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.finetunable = True
        self.jobs: list[list[dict[str, Any]]] = []

    def finetune(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        job: TrainingJob,
        model: str,
        train_data: Any,
        train_data_format: Any,
        train_kwargs: Any = None,
    ) -> str:
        self.jobs.append(train_data)
        return f"{model}-trained-{len(self.jobs)}"

    def __deepcopy__(self, memo: Any) -> "RecordingProvider":
        # Copies of the LM must record their jobs here, too.
        return self


class TwoStepProgram(dspy.Module):
    """A program that makes one call for a plan and another for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = dspy.Predict("question -> plan")
        self.say = dspy.Predict("question, plan -> answer")

    def forward(self, question: str) -> Any:
        return self.say(question=question, plan=self.plan(question=question).plan)


def reply(kind: str, text: str, n: int) -> dict[str, str] | str:
    """A scripted model that is right on easy questions, and not readable on garbled ones."""
    question = text.rsplit("[[ ## question ## ]]", 1)[1]
    if "garbled" in question and kind == "answer":
        return "I would rather not say."
    return {kind: "right" if "easy" in question else "wrong"}


def is_right(gold: Any, prediction: Any, trace: Any = None) -> bool:
    """The metric."""
    return prediction.answer == gold.answer


@pytest.mark.parametrize(
    ("multitask", "calls_per_job"),
    [
        pytest.param(True, [4], id="one model for all predictors"),
        pytest.param(False, [2, 2], id="one model per predictor"),
    ],
)
def test_only_calls_of_answers_that_passed_are_learned(scripted, multitask, calls_per_job):
    """Two of the four answers are right, those to the easy questions. Each took two calls."""
    provider = RecordingProvider()
    lm = scripted(reply)
    lm.provider = provider
    student = TwoStepProgram()
    student.set_lm(lm)
    questions = ["easy one", "hard one", "garbled one", "easy two"]
    trainset = [
        dspy.Example(question=question, answer="right").with_inputs("question")
        for question in questions
    ]
    teleprompter = PassedFinetune(metric=is_right, multitask=multitask, num_threads=2)

    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        trained = teleprompter.compile(student, trainset)

    assert [len(job) for job in provider.jobs] == calls_per_job
    training_data = str(provider.jobs)
    assert "easy one" in training_data
    assert "easy two" in training_data
    assert "hard one" not in training_data
    assert "garbled one" not in training_data
    for predictor in trained.predictors():
        assert "-trained-" in predictor.lm.model
