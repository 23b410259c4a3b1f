"""What a user may choose of a paper's trainings: trainer, settings, and the rewarding model.

The paper is Memory-R2. Some rows of its tables are models that it trained. The rewards of a
training come from the answers of a model, which may be another one than the trained. `horizons` are
how many sessions are written in each stage of a training; `lora` makes it smaller.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import mempiler
import pytest
from mempiler.errors import UserError
from mempiler.runs.papers.paper import read_paper
from mempiler.runs.papers.sections import Selection, plan_paper, resolve_sections
from mempiler.runs.papers.trainings import TrainingChoices

from ...command_line import json_of, output_of
from ...run_inputs import run_config

PAPER = read_paper("memory-r2")
TRAINING_PAGE = Path(mempiler.__file__).parent / "docs" / "training.md"


def training_of_row(label: str) -> Any:
    """Return how a row of the tables of Memory-R2 was trained."""
    return PAPER.variants[label].tuned


def test_a_setting_of_the_user_replaces_the_setting_of_the_paper() -> None:
    """The row "32 sessions" is trained by the paper with other horizons, and without `lora`."""
    choices = TrainingChoices({"horizons": [4], "lora": 8})

    config = choices.training_config(training_of_row("32 sessions"), "local:x")

    assert config.settings.curriculum.horizons == (4,)
    assert config.lora == 8


def test_a_row_keeps_the_setting_that_it_is_about_whatever_the_user_says() -> None:
    """The row "32 sessions at once" shows what becomes of a training with horizons = [32]."""
    choices = TrainingChoices({"horizons": [4]})

    config = choices.training_config(training_of_row("32 sessions at once"), "local:x")

    assert config.settings.curriculum.horizons == (32,)


def test_a_note_names_the_row_that_does_not_take_a_setting_of_the_user() -> None:
    """The row "32 sessions at once" is about its horizons, and "32 sessions" is not."""
    selection = Selection(["curriculum"], trainings=TrainingChoices({"horizons": [4]}))

    _, notes = resolve_sections(PAPER, run_config(benchmark="", lm="local:x"), selection)

    reason = "is trained with its own horizons = [32]: that is what the row is about"
    assert f"32 sessions at once {reason}" in notes
    assert not any(note.startswith("32 sessions is trained") for note in notes)


def test_the_model_that_answers_in_the_run_gives_the_rewards_of_a_training() -> None:
    config = run_config(benchmark="", answer_lm="openai/reader", answer_api_base="http://reader/v1")
    choices = TrainingChoices().with_reward_model(config)

    training = choices.training_config(training_of_row("32 sessions"), "local:trained-model")

    assert training.answer_lm == "openai/reader"
    assert training.answer_api_base == "http://reader/v1"


def test_the_user_may_name_another_model_for_the_rewards() -> None:
    """It is not asked at the address of the model that answers in the run."""
    config = run_config(benchmark="", answer_lm="openai/reader", answer_api_base="http://reader/v1")
    choices = TrainingChoices({"answer_lm": "openai/other"}).with_reward_model(config)

    training = choices.training_config(training_of_row("32 sessions"), "local:trained-model")

    assert training.answer_lm == "openai/other"
    assert training.answer_api_base is None


def test_the_trained_model_itself_gives_the_rewards_if_no_other_model_answers() -> None:
    """None stands for the trained model."""
    choices = TrainingChoices().with_reward_model(run_config(benchmark=""))

    training = choices.training_config(training_of_row("32 sessions"), "local:trained-model")

    assert training.answer_lm is None


def test_addresses_and_numbers_of_gpus_may_change_when_a_run_is_resumed() -> None:
    """`result_settings` are those that a resumed run must have in common with the first one.

    The number of GPUs and their memory only matter to the plan.
    """
    choices = TrainingChoices(
        {
            "lora": 8,
            "answer_lm": "openai/reader",
            "answer_api_base": "http://a",
            "train_gpus": 3,
            "gpu_memory": 80,
        }
    )

    assert choices.result_settings == {"lora": 8, "answer_lm": "openai/reader"}


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("colour=3", "unknown setting of the training 'colour'"),
        ("lora=much", "a setting of the training: lora"),
        ("answer_lm=openai/gpt-4.1-mini", "there is no key; set OPENAI_API_KEY"),
        ("train_gpus=3", "train_gpus = 3, but there is one process; start it with torchrun"),
    ],
)
def test_a_training_that_could_not_begin_is_refused_before_anything_is_made(
    setting: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # `torchrun` tells its processes by this variable how many they are.
    monkeypatch.delenv("WORLD_SIZE", raising=False)

    exit_code, _, stderr = cli(
        "reproduce", "memory-r2", "--section", "objectives-tiny", "--train-set", setting
    )

    assert exit_code == 2
    assert problem in stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_plan_says_nothing_of_gpu_memory_if_the_size_of_the_model_is_not_known() -> None:
    config = run_config(benchmark="", lm="local:nobody/x")

    plan, _ = plan_paper(PAPER, config, Selection(["main"]))

    assert plan.devices == ()
    assert "devices" not in plan.summary()


class Recipe(NamedTuple):
    """How the page on trainings says that a model of 7B is trained on eight GPUs."""

    toml: str
    """The configuration."""
    command: list[str]
    """The words of the command, which reads the configuration from `eight.toml`."""


def documented_recipe() -> Recipe:
    """Return the recipe of docs/training.md."""
    text = TRAINING_PAGE.read_text(encoding="utf-8")
    _, _, section = text.partition("## The 7B recipe on eight GPUs")
    toml = re.search(r"```toml\n(.*?)```", section, re.DOTALL)
    command = re.search(r"-m mempiler (reproduce .*?)\n```", section, re.DOTALL)
    assert toml
    assert command
    words = command[1].replace("\\\n", " ").split()
    # The bundled sample stands in for the genuine file.
    words = [word for word in words if word not in ("--data", "locomo10.json")]
    return Recipe(toml[1], words)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The recipe of docs/training.md; its configuration is in the working folder."""
    documented = documented_recipe()
    (tmp_path / "eight.toml").write_text(documented.toml)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    return documented


def planned_devices(recipe: Recipe, cli: Any) -> dict[str, Any]:
    """Return what the plan of the recipe says of the GPUs, by what they are for."""
    plan = json_of(cli, *recipe.command, "--plan")
    return {device["role"]: device for device in plan["devices"]}


@pytest.mark.slow
def test_the_recipe_uses_eight_gpus_and_fits_into_their_memory(recipe: Recipe, cli: Any) -> None:
    """All 7.6 billion weights are trained on three GPUs, with 20 bytes for each weight."""
    devices = planned_devices(recipe, cli)

    gpu_counts = {role: device["gpus"] for role, device in devices.items()}
    assert gpu_counts == {"training": 3, "sampling": 1, "answers for rewards": 4}
    assert {device["fits"] for device in devices.values()} == {True}
    gigabytes = devices["training"]["parts"]
    assert gigabytes["weights and optimizer"] == pytest.approx(7.6 * 20 / 3, abs=0.2)
    assert "frozen weights" not in gigabytes


def test_a_plan_says_that_a_model_does_not_fit_into_the_memory_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    """All weights of the 7B model are to be trained on one GPU of 80 GB."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)

    output = output_of(
        cli,
        *("reproduce", "memory-r2"),
        *("--section", "main"),
        *("--lm", "local:Qwen/Qwen2.5-7B-Instruct"),
        *("--train-set", "gpu_memory=80"),
        "--plan",
    )

    assert "80: does not fit" in " ".join(output.split())


def test_horizons_that_shrink_are_refused() -> None:
    """Horizons are how many sessions are written in each stage of a training. They must grow."""
    shrinking_horizons = TrainingChoices({"horizons": [9, 3]})
    selection = Selection(["main"], trainings=shrinking_horizons)

    with pytest.raises(UserError, match="horizons"):
        resolve_sections(PAPER, run_config(benchmark="", lm="local:x"), selection)
