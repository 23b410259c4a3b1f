"""Trainings: their settings and plans, and exported environments with the rewards of training.

A training changes the weights of a model that writes memories (Memory-R2). It makes rollouts: the
model writes the memory of a history several times. The reward of a rollout is the score of the
answers that its memory allows, less penalties.

An environment is a package that gives the same rewards to trainers of other libraries, such as
`verifiers`. "memory-env" is a benchmark with made-up users, and "local:tiny" is a tiny model.
"""

import json
import re
import shlex
import shutil
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.cli import main
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.local.settings import Reinforcement
from mempiler.engines.meter import Meter
from mempiler.errors import UserError
from mempiler.optimizers import demonstrations
from mempiler.optimizers.logo_grpo.settings import TrainingSettings
from mempiler.optimizers.logo_grpo.training_config import OBJECTIVES, TINY_CONFIG, TrainingConfig
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.runs.api import make_training
from mempiler.runs.exports.environment import Environment, Export
from mempiler.runs.folder import RunFolder
from mempiler.runs.inputs import RunInputs
from mempiler.runs.repeating import command_line
from mempiler.runs.run import Run
from mempiler.runs.setting_pairs import parse_settings
from mempiler.runs.train import command_options, run_for_printed_command

from ..demonstrated_model import save_demonstrated_model
from ..run_inputs import run_config
from ..scripted_engine import chat_fields

PACKAGE = Path(mempiler.__file__).parent
TEN_USERS = [
    *("--benchmark", "memory-env"),
    *("--benchmark-set", "users=10"),
    *("--benchmark-set", "sessions=2"),
]
"""Options for the benchmark with ten made-up users, of whom six are for training.

Each user has a history of two sessions, and questions about it.
"""


def export(folder: Path, *options: str) -> Path:
    """Export an environment in which a model learns to write memories by the method Memory-R2.

    The options are those of `mempiler export`. The result is the path of `export.json`, which
    holds the settings of the environment.
    """
    main(["export", "verifiers", "memory-r2", *options, "--out", str(folder)])
    (path,) = folder.glob("*/export.json")
    return path


def test_an_export_is_a_python_package_that_requires_mempiler(tmp_path: Path) -> None:
    """The package is named after its method, Memory-R2, and its benchmark, `memory-env`."""
    folder = tmp_path / "out"

    export_json = export(folder, *TEN_USERS)

    pyproject = tomllib.loads((folder / "pyproject.toml").read_text())
    assert pyproject["project"]["name"] == "mempiler-memory-r2-memory-env"
    assert "mempiler" in pyproject["project"]["dependencies"]

    package = folder / "mempiler_memory_r2_memory_env"
    assert export_json.parent == package
    assert {file.name for file in package.iterdir()} == {"__init__.py", "export.json"}
    # The code of the package is valid Python.
    compile((package / "__init__.py").read_text(), "__init__.py", "exec")


def test_an_exported_environment_has_the_histories_of_the_users_for_training(
    tmp_path: Path,
) -> None:
    """Of ten users, six are for training: the others are dev and test."""
    export_json = export(
        tmp_path / "out", "--benchmark", "memory-env", "--benchmark-set", "users=10"
    )

    environment = Environment.open(export_json)

    assert len(environment.histories) == 6


def test_an_exported_environment_subtracts_no_penalty_from_a_reward_by_default(
    tmp_path: Path,
) -> None:
    """The reward of a rollout is the score of the answers that its memory allows.

    The completions are what the trained model wrote. Here it wrote nothing.
    """
    environment = Environment.open(export(tmp_path / "out", *TEN_USERS))
    first_history_id = next(iter(environment.histories))

    result = environment.score(first_history_id, completions=[])

    score_of_answers = result.value
    assert result.reward == score_of_answers


def test_an_exported_environment_subtracts_the_penalty_that_the_user_set(tmp_path: Path) -> None:
    """`format_penalty` is subtracted if the completions of a model cannot be read.

    That is so for a model that wrote nothing.
    """
    options = [*TEN_USERS, "--reward-set", "format_penalty=0.5"]
    environment = Environment.open(export(tmp_path / "out", *options))
    first_history_id = next(iter(environment.histories))

    result = environment.score(first_history_id, completions=[])

    score_of_answers = result.value
    assert result.reward == score_of_answers - 0.5


def test_an_export_of_two_histories_of_one_id_is_refused(tmp_path: Path) -> None:
    lines = []
    for number in range(2):
        message = {"role": "user", "content": f"I moved to Porto, number {number}."}
        question = {"user": "ann", "messages": [message], "question": "Where?", "answer": "Porto"}
        lines.append(json.dumps(question))
    data = tmp_path / "mine.jsonl"
    data.write_text("\n".join(lines), encoding="utf-8")
    inputs = RunInputs(run_config("jsonl", data=str(data)))

    with pytest.raises(UserError, match="two different histories have the id 'ann'"):
        Environment(Export.of("memory-r2", inputs, "all"), tmp_path)


def test_a_data_file_of_the_user_is_named_but_not_copied(tmp_path: Path) -> None:
    """An export holds no data. The file is read where it lies, and must be unchanged."""
    (sample,) = (PACKAGE / "data" / "samples").glob("locomo*.json")
    data = tmp_path / "mine.json"
    shutil.copy(sample, data)

    options = ["--benchmark", "locomo", "--data", str(data), "--sessions", "1"]
    path = export(tmp_path / "out", *options)

    histories = list(Environment.open(path).histories.values())
    turn = histories[0].items[0].turns[0]
    exported_files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert exported_files
    for file in exported_files:
        assert turn.content not in file.read_text(encoding="utf-8")

    data.write_text(data.read_text().replace(turn.content, "Something else."))
    with pytest.raises(mempiler.DataError, match=r"mine.json: is not the data that was exported"):
        Environment.open(path)


@pytest.fixture(scope="module")
def export_content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The content of `export.json` of a made-up world."""
    path = export(tmp_path_factory.mktemp("export") / "out", *TEN_USERS)
    return json.loads(path.read_text())


def open_export(folder: Path, content: Any) -> Environment:
    """Open an environment whose `export.json` has this content."""
    path = folder / "export.json"
    path.write_text(json.dumps(content))
    return Environment.open(path)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"more": 1}, "was exported by another version: more: .*; export anew"),
        ({"reward": {"depth": 1}}, r"export.json: --reward-set: .*; export anew"),
    ],
)
def test_an_export_with_other_fields_is_refused(
    export_content: dict[str, Any], fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(mempiler.ProgramError, match=problem):
        open_export(tmp_path, {**export_content, **fields})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"set": {"chunk_turns": 2}}, "other prompts or settings than were exported"),
        ({"seed": "x"}, r"export.json: seed = 'x': .*; export anew"),
        ({"course": 1}, "unknown settings course; export anew"),
    ],
)
def test_an_export_with_other_options_is_refused(
    export_content: dict[str, Any], options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    changed_options = {**export_content["options"], **options}

    with pytest.raises(mempiler.ProgramError, match=problem):
        open_export(tmp_path, {**export_content, "options": changed_options})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"method": "memory-r2"}, "was exported by another version: options: .*; export anew"),
        ({"options": {}}, "is no export"),
        ([{"method": "memory-r2", "options": {}}], "is no export"),
    ],
)
def test_a_file_that_is_no_export_is_refused(content: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(mempiler.ProgramError, match=problem):
        open_export(tmp_path, content)


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        (["--benchmark", "memoryquest"], "memory-r2", "memoryquest is scored by a judge"),
        (TEN_USERS, "turn-rag", "turn-rag writes without a language model"),
        (
            ["--benchmark", "palbench.dialogue"],
            "memory-r2",
            "palbench.dialogue is a simulated conversation",
        ),
        ([*TEN_USERS, "--adapter", "auto"], "memory-r2", "--adapter auto asks an endpoint"),
        ([*TEN_USERS, "--max-usd", "1"], "memory-r2", "No such option '--max-usd'"),
        ([*TEN_USERS, "--reward-set", "depth=1"], "memory-r2", "--reward-set: .*compression"),
        (
            [*TEN_USERS, "--reward-set", "compression=-1"],
            "memory-r2",
            "--reward-set: compression: Input should be gr",
        ),
    ],
)
def test_an_export_that_is_impossible_is_refused_in_one_line(
    options: list[str], method: str, message: str, tmp_path: Path, cli: Any
) -> None:
    exit_code, _, error_output = cli(
        "export", "verifiers", method, *options, "--out", tmp_path / "out"
    )

    assert exit_code == 2
    (line,) = error_output.splitlines()
    assert re.search(message, line)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("optimizer", "objective", "session_reward"),
    [
        ("grpo", "grpo", "trajectory"),
        ("grpo-session", "grpo", "session"),
        ("grpo-cumulative", "grpo", "cumulative"),
        ("local", "local", "session"),
        ("logo-grpo", "logo", "session"),
    ],
)
def test_the_optimizer_decides_the_groups_and_their_reward(
    optimizer: str, objective: str, session_reward: str
) -> None:
    """The optimizers are the ordinary GRPO, and LoGo-GRPO of the paper Memory-R2, with variants.

    They compare rollouts within a group: all of a history, or all of a session. `session_reward`
    says which questions count as the reward of a session.
    """
    training = TrainingConfig(objective=optimizer).training(seed=7)

    assert training.objective == objective
    assert training.session_reward == session_reward
    assert training.seed == 7


def test_the_groups_and_rewards_of_every_optimizer_that_trains_are_tested() -> None:
    """The test above has a case for each of these."""
    assert list(OBJECTIVES) == ["grpo", "grpo-session", "grpo-cumulative", "local", "logo-grpo"]


def test_the_session_reward_of_logo_grpo_may_be_chosen() -> None:
    """LoGo-GRPO is the training of the paper Memory-R2. Its session reward is "session"."""
    config = TrainingConfig(objective="logo-grpo").changed({"session_reward": "cumulative"})

    training = config.training(seed=0)

    assert training.session_reward == "cumulative"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"seed": 3}, "seed = 3: a training has the seed of its run; give --seed"),
        ({"settings": {"seed": 3}}, "seed = 3: a training has the seed of its run; give --seed"),
        (
            {"settings": {"objective": "grpo"}},
            "objective = 'grpo' within settings has no effect; give --optimizer",
        ),
        (
            {"settings": TrainingSettings(seed=3)},
            "seed = 3: a training has the seed of its run; give --seed",
        ),
        (
            {"settings": TrainingSettings(objective="grpo")},
            "objective = 'grpo' within settings has no effect",
        ),
        (
            {"objective": "grpo", "settings": TrainingSettings(session_reward="cumulative")},
            "--optimizer grpo has 'trajectory'; leave it out, or give --optimizer grpo-cumulative",
        ),
        ({"objective": "logo"}, "--optimizer 'logo': choose one of grpo, grpo-session,"),
        (
            {"objective": "grpo", "session_reward": "session"},
            "--optimizer grpo has 'trajectory'; leave it out, or give --optimizer grpo-session",
        ),
        (
            {"objective": "local", "session_reward": "cumulative"},
            "--optimizer local has no global groups",
        ),
    ],
)
def test_a_setting_of_a_training_without_effect_is_refused(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        TrainingConfig().changed(settings)


def test_a_session_reward_that_the_optimizer_has_anyway_is_no_mistake() -> None:
    """The session reward of the objective "grpo" is "trajectory"."""
    config = TrainingConfig().changed({"objective": "grpo", "session_reward": "trajectory"})

    training = config.training(seed=0)

    assert training.session_reward == "trajectory"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(TrainingSettings(histories=3), id="with released defaults"),
        pytest.param(replace(TINY_CONFIG.settings, histories=3), id="with those of local:tiny"),
    ],
)
def test_settings_in_one_object_may_repeat_the_defaults(settings: TrainingSettings) -> None:
    """A user may give all settings as one object.

    Its objective and session reward are only defaults here, so those of the optimizer hold.
    """
    config = TINY_CONFIG.changed({"objective": "grpo-session", "settings": settings})
    expected = replace(settings, seed=7, objective="grpo", session_reward="session")

    assert config.training(seed=7) == expected


def test_each_setting_goes_to_the_group_that_has_it() -> None:
    """Users give all settings in one list, whatever part of a training they are for."""
    defaults = TrainingConfig.for_model("local:tiny")
    config = defaults.changed(
        {"lora": 4, "num_rollouts": 2, "tokens": 900, "horizons": [1, 2], "beta": 0.5}
    )

    assert config.lora == 4
    assert config.settings.num_rollouts == 2
    assert config.settings.curriculum.tokens == 900
    assert config.settings.curriculum.horizons == (1, 2)
    # What no group has is for the trainer.
    assert config.train_kwargs == {**defaults.train_kwargs, "beta": 0.5}


def test_a_training_of_all_weights_has_the_released_numbers() -> None:
    """By default a training is that of the paper Memory-R2, whose authors released their code."""
    config = TrainingConfig.for_model("local:Qwen/Qwen2.5-7B")
    trainer = Reinforcement.parse(config.trainer_settings)

    assert trainer.learning_rate == 2e-6
    assert trainer.epochs == 2
    assert trainer.batch_size == 2048
    assert trainer.weight_decay == 0.01
    assert trainer.old_logprobs == "recomputed"
    assert config.answer_tokens == 2048
    assert config.settings.histories == 1
    curriculum = config.settings.curriculum
    assert [curriculum.steps_of(stage) for stage in range(3)] == [10, 5, 5]


def test_a_training_of_a_lora_adapter_has_a_learning_rate_and_epochs_of_its_own() -> None:
    """A LoRA adapter has few weights, which are trained in the place of all weights."""
    config = TrainingConfig.for_model("local:Qwen/Qwen2.5-7B").changed({"lora": 16})
    trainer = Reinforcement.parse(config.trainer_settings)

    assert trainer.learning_rate == 1e-5
    assert trainer.epochs == 1
    assert trainer.batch_size == 2048


def test_the_epochs_of_an_adapter_may_be_set() -> None:
    """By default a LoRA adapter is trained for one epoch; its learning rate stays 1e-5."""
    config = TrainingConfig.for_model("local:Qwen/Qwen2.5-7B")

    adapter_config = config.changed({"lora": 16, "epochs": 3})

    trainer = Reinforcement.parse(adapter_config.trainer_settings)

    assert trainer.learning_rate == 1e-5
    assert trainer.epochs == 3


@pytest.mark.parametrize("changes", [{}, {"lora": 4}], ids=["all weights", "an adapter"])
def test_a_training_of_the_tiny_model_has_numbers_of_its_own(changes: dict[str, Any]) -> None:
    config = TrainingConfig.for_model("local:tiny").changed(changes)
    trainer = Reinforcement.parse(config.trainer_settings)

    assert trainer.learning_rate == 2e-4
    assert trainer.epochs == 2
    assert trainer.batch_size == 48
    assert trainer.weight_decay == 0.0
    assert trainer.old_logprobs == "sampled"
    assert config.answer_tokens == 96
    assert config.settings.histories == 2


def test_a_setting_that_trl_does_not_decide_is_refused_before_the_model_is_made() -> None:
    """TRL is a library that can take the place of our trainer.

    Mempiler sets some of its settings itself.
    """
    message = "epsilon is not TRL's to decide; set --train-set clip_low=VALUE"

    with pytest.raises(mempiler.UserError, match=message):
        TrainingConfig.for_model("local:tiny").changed({"trainer": "trl", "trl": {"epsilon": 0.1}})


def test_the_configurations_of_the_manual_are_valid() -> None:
    """Each configuration sets the trainer, settings of the training, and settings of TRL."""
    manual = (PACKAGE / "docs" / "training.md").read_text(encoding="utf-8")
    configurations = re.findall(r"```toml\n(.*?)```", manual, re.DOTALL)
    assert len(configurations) >= 2

    for configuration in configurations:
        training = tomllib.loads(configuration)["training"]
        settings = {**training["settings"], "trainer": training["trainer"]}
        config = TrainingConfig.for_model("local:a/model").changed(settings)
        trainer = Reinforcement.parse(config.trainer_settings)
        assert trainer.trl == settings["trl"]


def values_after(words: list[str], option: str) -> list[str]:
    """Return the values of an option of a command, in their order."""
    return [value for word, value in pairwise(words) if word == option]


def test_the_command_on_the_page_of_a_training_repeats_it(tmp_path: Path) -> None:
    """The page of a run shows a command that would repeat it."""
    config = run_config("memory-env", lm="local:tiny", answer_lm="openai/reader", test=4, workers=1)
    changes = {"steps": 2, "tokens": None, "horizons": [2, 4], "lora": 4}
    training = make_training(config, "logo-grpo", changes, "local")
    options = command_options(training, "local:tiny")
    run = Run(RunInputs(config), Meter(), BudgetGuard(), RunFolder(tmp_path))

    command = command_line(run_for_printed_command(run).inputs, "train", "memory-r2", options)

    words = shlex.split(command)
    assert values_after(words, "--optimizer") == ["logo-grpo"]
    # The answer model is a setting of the training.
    assert "--answer-lm" not in words
    assert "--max-failure-rate" not in words
    settings = parse_settings(values_after(words, "--train-set"))
    assert settings.items() >= {**changes, "answer_lm": "openai/reader"}.items()

    # The words give a training that would be printed with the same options.
    (trainer,) = values_after(words, "--trainer")
    config = config.with_options(answer_lm=None)
    repeated = make_training(config, "logo-grpo", settings, trainer)
    assert command_options(repeated, "local:tiny") == options


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("turn-rag", {}, "turn-rag writes without a language model"),
        ("memory-r2", {"train": 0}, "there is no training history with a session; raise --train"),
        ("memory-r2", {"lm": "offline"}, "offline cannot be trained in this process; use --lm"),
    ],
)
def test_a_training_of_nothing_has_no_plan(
    program: str, options: dict[str, Any], message: str
) -> None:
    """A plan says before a run how many calls it will make."""
    with pytest.raises(mempiler.UserError, match=message):
        mempiler.plan_training(
            program, **{"benchmark": "memory-env", "lm": "local:tiny", "progress": False, **options}
        )


def own_examples(count: int) -> list[dspy.Example]:
    """Return questions of the made-up world, as a user's own examples: a model answers them."""
    world = mempiler.benchmark("memory-env", users=10, sessions=2)
    return world.examples[:count]


def test_a_training_on_own_examples_is_planned() -> None:
    examples = own_examples(3)
    plan = mempiler.plan_training(
        trainset=examples[:1],
        valset=examples[1:2],
        testset=examples[2:],
        metric="exact",
        lm="local:a/model",
        train_set={"steps": 1, "horizons": [1]},
        progress=False,
    )

    assert plan.phases["training"].high > 0


@pytest.fixture(scope="module")
def examples_of_three_users() -> list[list[dspy.Example]]:
    """The questions to each of three users."""
    examples_by_user: dict[str, list[dspy.Example]] = {}
    for example in own_examples(40):
        examples_by_user.setdefault(example.history.id, []).append(example)
    first_user, second_user, third_user = list(examples_by_user.values())[:3]
    assert len(first_user) > 1
    return [first_user, second_user, third_user]


@pytest.mark.parametrize("setting", ["questions", "local_questions"])
def test_a_plan_counts_every_question_of_rollouts_and_reruns(
    examples_of_three_users: list[list[dspy.Example]], setting: str
) -> None:
    """A training asks `questions` after each rollout.

    A rerun writes a session once more, and is asked `local_questions`.
    """
    trainset, valset, testset = examples_of_three_users

    def most_training_calls(**train_set: Any) -> float:
        plan = mempiler.plan_training(
            trainset=trainset,
            valset=valset,
            testset=testset,
            metric="exact",
            lm="local:a/model",
            train_set={"steps": 1, "horizons": [1], **train_set},
            progress=False,
        )
        return plan.phases["training"].high

    one_question = {"questions": 1, "local_questions": 1}
    two_questions = {**one_question, setting: 2}
    assert most_training_calls(**two_questions) > most_training_calls(**one_question)


class CountingLM(dspy.BaseLM):
    """A model of the user's own that counts its calls."""

    def __init__(self) -> None:
        super().__init__("own/reader")
        self.calls = 0

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.calls += 1
        message = SimpleNamespace(content=chat_fields(answer="cat"), tool_calls=None)
        choice = SimpleNamespace(message=message, finish_reason="stop")
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        return SimpleNamespace(choices=[choice], usage=usage, model="own/reader")

    # A training copies the object; the calls of all copies are counted together.
    def __deepcopy__(self, memo: Any) -> "CountingLM":
        return self


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_object_answers_in_a_training_which_may_be_resumed(tmp_path: Path) -> None:
    """Rewards need a model that answers questions.

    It may be an object of the user, and another model than the trained one.
    """
    pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    start = save_demonstrated_model(tmp_path / "start", steps=2)
    examples = own_examples(3)
    reader = CountingLM()
    options: dict[str, Any] = {
        "trainset": examples[:1],
        "valset": examples[1:2],
        "testset": examples[2:],
        "metric": "exact",
        "lm": f"local:{start}",
        "answer_lm": reader,
        "adapter": "compact",
        "train_set": {
            "steps": 1,
            "num_rollouts": 2,
            "local_n": 2,
            "horizons": [1],
            "answer_tokens": 24,
        },
        "progress": False,
    }

    trained = mempiler.train("memory-r2", **options)
    calls = reader.calls
    resumed = mempiler.train("memory-r2", resume=str(trained.run), **options)

    assert calls > 0
    # A resumed run asks for no answer again.
    assert reader.calls == calls
    assert resumed.after.score == trained.after.score


def test_the_tiny_model_is_shown_demonstrations_of_every_session() -> None:
    """The tiny model first learns from demonstrations, which are right completions.

    They are about made-up conversations of eight sessions.
    """
    method = MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env")))

    shown = demonstrations.demonstrate(method, CompactAdapter(), conversations=4, sessions=8)

    session_numbers: set[str] = set()
    for demonstration in shown:
        prompt = demonstration.messages[-1]["content"]
        session_numbers.update(re.findall(r"D(\d+):", prompt))
    assert session_numbers == {"1", "2", "3", "4", "5", "6", "7", "8"}


@pytest.mark.slow
def test_the_tiny_model_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is kept in a folder of the cache."""
    pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # A warm-up of full length takes minutes.
    for name, value in {"USERS": 4, "STEPS": 2, "POOR_STEPS": 1, "BATCH": 2}.items():
        monkeypatch.setattr(demonstrations, name, value)

    folder = demonstrations.tiny_folder()
    time_made = (folder / "config.json").stat().st_mtime_ns
    second_folder = demonstrations.tiny_folder()

    assert second_folder == folder
    assert (folder / "config.json").stat().st_mtime_ns == time_made
    # No temporary folder is left beside it.
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
