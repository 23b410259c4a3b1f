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


def right_about_easy_questions(kind: str, text: str, n: int) -> dict[str, str] | str:
    """A scripted model: right on easy questions, wrong on hard ones, unreadable on garbled ones."""
    question = text.rsplit("[[ ## question ## ]]", 1)[1]
    if "garbled" in question and kind == "answer":
        return "I would rather not say."
    return {kind: "right" if "easy" in question else "wrong"}


def is_right(gold: Any, prediction: Any, trace: Any = None) -> bool:
    """The metric."""
    return prediction.answer == gold.answer


def training_questions() -> list[dspy.Example]:
    """Return two easy questions, a hard one and a garbled one; the right answer is "right"."""
    questions = ["easy one", "hard one", "garbled one", "easy two"]
    return [
        dspy.Example(question=question, answer="right").with_inputs("question")
        for question in questions
    ]


@pytest.mark.parametrize(
    ("multitask", "calls_per_job"),
    [
        pytest.param(True, [2 + 2], id="one model for both predictors"),
        pytest.param(False, [2, 2], id="one model for each predictor"),
    ],
)
def test_fine_tuning_learns_only_from_calls_that_led_to_a_right_answer(
    scripted, multitask, calls_per_job
):
    """The model is right about the two easy questions; each took a call of both predictors."""
    provider = RecordingProvider()
    lm = scripted(right_about_easy_questions)
    lm.provider = provider
    student = TwoStepProgram()
    student.set_lm(lm)
    teleprompter = PassedFinetune(metric=is_right, multitask=multitask, num_threads=2)

    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        trained = teleprompter.compile(student, training_questions())

    assert [len(job) for job in provider.jobs] == calls_per_job
    training_data = str(provider.jobs)
    assert "easy one" in training_data
    assert "easy two" in training_data
    assert "hard one" not in training_data
    assert "garbled one" not in training_data
    for predictor in trained.predictors():
        assert "-trained-" in predictor.lm.model
