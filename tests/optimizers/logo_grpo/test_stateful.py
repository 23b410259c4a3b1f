"""LoGo-GRPO takes any `dspy.Module` with a state: what it needs, what is trained, what is refused."""

from typing import Any

import dspy
import pytest
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.curriculum import Curriculum
from mempiler.optimizers.logo_grpo.settings import TrainingSettings
from mempiler.optimizers.logo_grpo.stateful import Stateful


class Diary(dspy.Module):
    """Notes of each session, in a list that `step` changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.note = dspy.Predict("diary: list[str], dialogue: str -> note: str")
        self.tell = dspy.Predict("diary: list[str], question: str -> answer: str")

    def initial_state(self) -> dict[str, Any]:
        return {"notes": [], "made_by": object()}

    def step(self, state: dict[str, Any], session: Any) -> dict[str, Any]:
        said = self.note(diary=state["notes"], dialogue="\n".join(session.lines()))
        state["notes"].append(said.note)
        return state

    def answer(self, state: dict[str, Any], question: str) -> dspy.Prediction:
        return self.tell(diary=state["notes"], question=question)


def settings(**changed: Any) -> TrainingSettings:
    shared: dict[str, Any] = {"num_rollouts": 3, "local_n": 3, "local_fraction": 1.0, "histories": 1, "threads": 1}
    curriculum = Curriculum((3,), steps=1)
    return TrainingSettings(**{**shared, "curriculum": curriculum, "max_format_failures": 1.0, **changed})


def notes(say: Any) -> Any:
    """Notes the dialogue, or something else, or nothing readable; tells what is in the diary."""

    def reply(kind: str, text: str, rng: Any) -> str:
        if kind == "answer":
            return say.fields(answer=text.replace("##", ""))
        chance = rng.random()
        if chance < 0.2:
            return "no field"
        said = text.partition("[[ ## dialogue ## ]]")[2].partition("Respond with")[0].strip()
        return say.fields(note=said if chance < 0.6 else "they talked")

    return reply


def test_a_module_is_trained_on_what_its_steps_wrote(world: Any, say: Any) -> None:
    made, module = world(notes(say)), Diary()
    assert isinstance(module, Stateful)
    teleprompter = made.teleprompter(settings())
    with dspy.context(lm=made.lm):
        trained = teleprompter.compile(module, trainset=made.train, valset=made.dev)
    (batch,) = made.job.batches
    assert {group["role"] for group in batch} == {"module.note"}
    members = [item for group in batch for item in group["group"]]
    # Memories grow by the session: a group's members were asked from one diary, though steps change it in place.
    local = [group["group"] for group in batch if len({str(item["messages"]) for item in group["group"]}) == 1]
    assert len(local) >= 3
    unread = [item["reward"] for item in members if item["completion"]["content"] == "no field"]
    read = [item["reward"] for item in members if item["completion"]["content"] != "no field"]
    assert unread
    assert max(read) > max(unread)
    assert max(row.get("score", 0.0) for row in made.rows) > 0
    assert teleprompter.progress.best is not None
    assert type(trained) is Diary
    assert type(module.note) is dspy.Predict


def test_the_length_of_a_state_is_that_of_its_texts(world: Any, say: Any) -> None:
    from mempiler.optimizers.logo_grpo.reward import memory_words
    from mempiler.optimizers.logo_grpo.rollout import roll_out
    from mempiler.optimizers.logo_grpo.stateful import StateProgram

    made = world(lambda kind, text, rng: say.fields(note="four words are here"))
    with dspy.context(lm=made.lm):
        rollout = roll_out(StateProgram(Diary()).method.writer, made.train[0].history, "words")
    told = memory_words(rollout.memory)
    assert 3 * 4 <= told <= 3 * 4 + 5
    assert [len(run.before.state["notes"]) for run in rollout.sessions[1:]] == [1, 2]


class Forgetful(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.answer_it = dspy.Predict("question -> answer")


@pytest.mark.parametrize(
    ("module", "changed", "message"),
    [
        (Forgetful, {}, "Forgetful cannot be trained: it has no initial_state, step, answer; LoGo-GRPO takes"),
        (Diary, {"weights": "separate"}, "weights = separate is for a MemoryProgram; train Diary with shared"),
        (Diary, {"history": []}, "an example for Diary has no history that is a mempiler.History"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(world: Any, module: Any, changed: Any, message: str) -> None:
    made = world()
    trainset = [each.copy(history=changed["history"]) for each in made.train] if "history" in changed else made.train
    chosen = settings(**{name: value for name, value in changed.items() if name != "history"})
    with dspy.context(lm=made.lm), pytest.raises(UserError) as caught:
        made.teleprompter(chosen).compile(module(), trainset=trainset)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
