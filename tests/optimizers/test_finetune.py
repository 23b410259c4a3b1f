"""Fine-tuning learns the calls of answers that passed, and no others."""

from typing import Any

import dspy
import pytest
from dspy.clients.provider import Provider, TrainingJob
from mempiler.optimizers.passed_finetune import PassedFinetune


class Keeping(Provider):
    """A provider that keeps what it is to train on, and names the model that comes of it."""

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

    def __deepcopy__(self, memo: Any) -> "Keeping":
        return self


class TwoSteps(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plan = dspy.Predict("question -> plan")
        self.say = dspy.Predict("question, plan -> answer")

    def forward(self, question: str) -> Any:
        return self.say(question=question, plan=self.plan(question=question).plan)


def reply(kind: str, text: str, n: int) -> Any:
    asked = text.rsplit("[[ ## question ## ]]", 1)[1]
    if "garbled" in asked and kind == "answer":
        return "I would rather not say."
    return {kind: "right" if "easy" in asked else "wrong"}


@pytest.mark.parametrize(("multitask", "calls"), [(True, [4]), (False, [2, 2])])
def test_only_calls_of_answers_that_passed_are_learned(scripted, multitask, calls):
    lm, provider, student = scripted(reply), Keeping(), TwoSteps()
    lm.provider = provider
    student.set_lm(lm)
    questions = ["easy one", "hard one", "garbled one", "easy two"]
    trainset = [
        dspy.Example(question=each, answer="right").with_inputs("question") for each in questions
    ]
    teleprompter = PassedFinetune(
        metric=lambda gold, pred, trace=None: pred.answer == gold.answer,
        multitask=multitask,
        num_threads=2,
    )
    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        trained = teleprompter.compile(student, trainset)

    assert sorted(len(job) for job in provider.jobs) == calls
    learned = str(provider.jobs)
    assert "easy one" in learned
    assert "easy two" in learned
    assert "hard one" not in learned
    assert "garbled one" not in learned
    assert all("-trained-" in predictor.lm.model for predictor in trained.predictors())
