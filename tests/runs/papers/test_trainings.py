"""What a user says of a paper's trainings: the trainer, the model that gives rewards, and what fits the machine."""

import json
import re
from pathlib import Path

import mempiler
import pytest
from mempiler.errors import UserError
from mempiler.runs.papers.paper import read_paper
from mempiler.runs.papers.sections import Selection, plan_paper, resolve_sections
from mempiler.runs.papers.trainings import TrainingChoices

from ...run_inputs import run_config

SEVEN = "local:Qwen/Qwen2.5-7B-Instruct"
READER = "openai/openai/gpt-oss-120b"
PAPER = read_paper("memory-r2")
TRAINING_PAGE = Path(mempiler.__file__).parent / "docs" / "training.md"


def test_a_setting_that_a_row_is_about_is_kept_and_named():
    config = run_config(benchmark="", lm="local:x")
    choices = TrainingChoices({"horizons": [4], "lora": 8})
    _, notes = resolve_sections(PAPER, config, Selection(["curriculum"], trainings=choices))
    at_once = PAPER.variants["32 sessions at once"].tuned
    whole = PAPER.variants["32 sessions"].tuned
    assert choices.training_config(at_once, "local:x").settings.curriculum.horizons == (32,)
    assert choices.training_config(whole, "local:x").settings.curriculum.horizons == (4,)
    assert choices.training_config(at_once, "local:x").lora == 8
    assert (
        "32 sessions at once is trained with its own horizons = [32]: that is what the row is about"
        in notes
    )
    assert not any(note.startswith("32 sessions is trained") for note in notes)


def test_the_model_that_answers_gives_the_rewards_unless_another_one_is_named():
    config = run_config(benchmark="", answer_lm=READER, answer_api_base="http://reader/v1")
    tuning = PAPER.variants["32 sessions"].tuned
    course = TrainingChoices().with_reward_model(config).training_config(tuning, SEVEN)
    assert course.answer_lm == READER
    assert course.answer_api_base == "http://reader/v1"
    # The address of the one is not taken for the other.
    named = (
        TrainingChoices({"answer_lm": "openai/other"})
        .with_reward_model(config)
        .training_config(tuning, SEVEN)
    )
    assert named.answer_lm == "openai/other"
    assert named.answer_api_base is None
    assert (
        TrainingChoices()
        .with_reward_model(run_config(benchmark=""))
        .training_config(tuning, SEVEN)
        .answer_lm
        is None
    )


def test_addresses_and_settings_of_plans_may_change_when_a_run_is_resumed():
    settings = {
        "lora": 8,
        "answer_lm": READER,
        "answer_api_base": "http://a",
        "train_gpus": 3,
        "gpu_memory": 80,
    }
    assert TrainingChoices(settings).result_settings == {"lora": 8, "answer_lm": READER}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--train-set", "colour=3"], "unknown setting of the training 'colour'"),
        (["--train-set", "lora=much"], "a setting of the training: lora"),
        (["--train-set", "answer_lm=openai/gpt-4.1-mini"], "there is no key; set OPENAI_API_KEY"),
        (
            ["--train-set", "train_gpus=3"],
            "train_gpus = 3, but there is one process; start it with torchrun",
        ),
    ],
)
def test_a_training_that_could_not_begin_is_one_line_before_anything_is_made(
    words, said, tmp_path, monkeypatch, cli
):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    code, _, err = cli("reproduce", "memory-r2", "--section", "objectives-tiny", *words)
    assert code == 2
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_model_whose_shape_is_not_known_is_planned_without_memory():
    plan, _ = plan_paper(PAPER, run_config(benchmark="", lm="local:nobody/x"), Selection(["main"]))
    assert plan.devices == ()
    assert "devices" not in plan.summary()


def recipe() -> tuple[str, list[str]]:
    """The configuration of docs/training.md for eight GPUs, and the words of its command."""
    page = TRAINING_PAGE.read_text(encoding="utf-8").partition("## The 7B recipe on eight GPUs")[2]
    toml = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    command = re.search(r"-m mempiler (reproduce .*?)\n```", page, re.DOTALL)
    assert toml
    assert command
    return toml[1], command[1].replace("\\\n", " ").split()


@pytest.mark.slow
def test_the_recipe_for_eight_gpus_is_planned_and_fits(tmp_path, monkeypatch, cli):
    """Three train all weights, one samples, four answer for rewards; no GPU is needed to know it."""
    toml, words = recipe()
    (tmp_path / "eight.toml").write_text(toml)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    # The bundled sample stands in for the genuine file.
    words = [word for word in words if word not in ("--data", "locomo10.json")]
    code, out, err = cli(*words, "--plan", "--json")
    assert code == 0, err
    found = json.loads(out)
    devices = {device["role"]: device for device in found["devices"]}
    gpus = {role: device["gpus"] for role, device in devices.items()}
    assert gpus == {"training": 3, "sampling": 1, "answers for rewards": 4}
    assert all(device["fits"] for device in devices.values())
    # All weights, in three shards: 20 bytes of each.
    assert devices["training"]["parts"]["weights and optimizer"] == pytest.approx(50.8, abs=0.1)
    assert "frozen weights" not in devices["training"]["parts"]
    assert not (tmp_path / "home").exists()
    _, table, _ = cli(*words, "--plan")
    assert "answers for rewards 4 72.0 of 80" in " ".join(table.split())


def test_a_recipe_that_does_not_fit_says_so(tmp_path, monkeypatch, cli):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    words = [
        "reproduce",
        "memory-r2",
        "--section",
        "main",
        "--lm",
        SEVEN,
        "--train-set",
        "gpu_memory=80",
        "--plan",
    ]
    _, table, _ = cli(*words)
    assert "80: does not fit" in " ".join(table.split())


def test_a_setting_of_no_fitting_value_is_refused_where_the_rows_are_resolved():
    shrinking = TrainingChoices({"horizons": [9, 3]})
    with pytest.raises(UserError, match="horizons"):
        resolve_sections(
            PAPER, run_config(benchmark="", lm="local:x"), Selection(["main"], trainings=shrinking)
        )
