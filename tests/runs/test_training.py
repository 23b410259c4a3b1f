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
from mempiler.optimizers.logo_grpo.training_config import TINY_CONFIG, TrainingConfig
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
    """Run `mempiler export` for an environment in which a model learns to write by Memory-R2.

    Returns:
        The path of `export.json`, which holds the settings of the environment.
    """
    main(["export", "verifiers", "memory-r2", *options, "--out", str(folder)])
    (path,) = folder.glob("*/export.json")
    return path


def test_an_export_is_a_python_package_that_requires_mempiler(tmp_path: Path) -> None:
    export(tmp_path / "out", *TEN_USERS)

    pyproject = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())
    assert pyproject["project"]["name"] == "mempiler-memory-r2-memory-env"
    assert "mempiler" in pyproject["project"]["dependencies"]


def test_an_export_consists_of_valid_code_and_the_settings(tmp_path: Path) -> None:
    export(tmp_path / "out", *TEN_USERS)

    package = tmp_path / "out" / "mempiler_memory_r2_memory_env"
    assert {file.name for file in package.iterdir()} == {"__init__.py", "export.json"}
    compile((package / "__init__.py").read_text(), "__init__.py", "exec")


def test_an_exported_environment_has_the_histories_of_the_users_for_training(
    tmp_path: Path,
) -> None:
    """Of ten users, six are for training: the others are dev and test."""
    export_json = export(tmp_path / "out", *TEN_USERS)

    environment = Environment.open(export_json)

    assert len(environment.histories) == 6


def reward_of_writing_nothing(export_json: Path) -> Any:
    """Return the reward of a model whose completions for the first history are missing.

    The reward of a rollout is the score of the answers that its memory allows, less penalties.
    """
    environment = Environment.open(export_json)
    first_history_id = next(iter(environment.histories))
    return environment.score(first_history_id, completions=[])


def test_an_exported_environment_subtracts_no_penalty_from_a_reward_by_default(
    tmp_path: Path,
) -> None:
    export_json = export(tmp_path / "out", *TEN_USERS)

    result = reward_of_writing_nothing(export_json)

    score_of_answers = result.value
    assert result.reward == score_of_answers


def test_an_exported_environment_subtracts_the_penalty_that_the_user_set(tmp_path: Path) -> None:
    """`format_penalty` is subtracted if completions cannot be read, which missing ones cannot."""
    export_json = export(tmp_path / "out", *TEN_USERS, "--reward-set", "format_penalty=0.5")

    result = reward_of_writing_nothing(export_json)

    score_of_answers = result.value
    assert result.reward == score_of_answers - 0.5


def test_an_export_of_two_histories_with_the_same_id_is_refused(tmp_path: Path) -> None:
    lines = []
    for place in ("Porto", "Oslo"):
        message = {"role": "user", "content": f"I moved to {place}."}
        question = {"user": "ann", "messages": [message], "question": "Where?", "answer": place}
        lines.append(json.dumps(question))
    data = tmp_path / "mine.jsonl"
    data.write_text("\n".join(lines), encoding="utf-8")
    inputs = RunInputs(run_config("jsonl", data=str(data)))

    with pytest.raises(UserError, match="two different histories have the id 'ann'"):
        Environment(Export.of("memory-r2", inputs, "all"), tmp_path)


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A data file of the user, in the form of LoCoMo."""
    (sample,) = (PACKAGE / "data" / "samples").glob("locomo*.json")
    return Path(shutil.copy(sample, tmp_path / "mine.json"))


def export_own_data(folder: Path, data: Path) -> Path:
    """Export an environment with the first session of each history of a user's data file."""
    return export(folder, "--benchmark", "locomo", "--data", str(data), "--sessions", "1")


def first_text(environment: Environment) -> str:
    """Return the text of the first turn of the first history."""
    first_history = next(iter(environment.histories.values()))
    return first_history.items[0].turns[0].content


def test_an_export_holds_no_text_of_the_users_data_file(tmp_path: Path, own_data: Path) -> None:
    """It only names the file, which is read where it lies."""
    export_json = export_own_data(tmp_path / "out", own_data)

    text = first_text(Environment.open(export_json))
    exported_files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert exported_files
    for file in exported_files:
        assert text not in file.read_text(encoding="utf-8")


def test_an_export_is_not_opened_if_the_users_data_file_has_changed(
    tmp_path: Path, own_data: Path
) -> None:
    export_json = export_own_data(tmp_path / "out", own_data)
    text = first_text(Environment.open(export_json))
    own_data.write_text(own_data.read_text().replace(text, "Something else."))

    with pytest.raises(mempiler.DataError, match=r"mine.json: is not the data that was exported"):
        Environment.open(export_json)


@pytest.fixture(scope="module")
def export_content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The content of an `export.json`."""
    path = export(tmp_path_factory.mktemp("export") / "out", *TEN_USERS)
    return json.loads(path.read_text())


def open_export(folder: Path, content: Any) -> Environment:
    """Open an environment whose `export.json` has this content."""
    path = folder / "export.json"
    path.write_text(json.dumps(content))
    return Environment.open(path)


@pytest.mark.parametrize(
    ("changed_fields", "problem"),
    [
        ({"more": 1}, "was exported by another version: more: .*; export anew"),
        ({"reward": {"depth": 1}}, r"export.json: --reward-set: .*; export anew"),
    ],
)
def test_an_export_with_unknown_fields_is_refused(
    export_content: dict[str, Any], changed_fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(mempiler.ProgramError, match=problem):
        open_export(tmp_path, {**export_content, **changed_fields})


@pytest.mark.parametrize(
    ("changed_options", "problem"),
    [
        ({"set": {"chunk_turns": 2}}, "other prompts or settings than were exported"),
        ({"seed": "x"}, r"export.json: seed = 'x': .*; export anew"),
        ({"course": 1}, "unknown settings course; export anew"),
    ],
)
def test_an_export_with_changed_options_is_refused(
    export_content: dict[str, Any], changed_options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    options = {**export_content["options"], **changed_options}

    with pytest.raises(mempiler.ProgramError, match=problem):
        open_export(tmp_path, {**export_content, "options": options})


@pytest.mark.parametrize(
    "content",
    [{"options": {}}, [{"method": "memory-r2", "options": {}}]],
    ids=["no method", "list"],
)
def test_a_file_that_is_no_export_is_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(mempiler.ProgramError, match="is no export"):
        open_export(tmp_path, content)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(
            ["memory-r2", "--benchmark", "memoryquest"],
            "memoryquest is scored by a judge",
            id="a benchmark with a judge",
        ),
        pytest.param(
            ["memory-r2", "--benchmark", "palbench.dialogue"],
            "palbench.dialogue is a simulated conversation",
            id="a benchmark of whole conversations",
        ),
        pytest.param(
            ["turn-rag", *TEN_USERS],
            "turn-rag writes without a language model",
            id="a method without a model to train",
        ),
        pytest.param(
            ["memory-r2", *TEN_USERS, "--adapter", "auto"],
            "--adapter auto asks an endpoint",
            id="an adapter that asks an endpoint",
        ),
        pytest.param(
            ["memory-r2", *TEN_USERS, "--max-usd", "1"],
            "No such option '--max-usd'",
            id="a limit of costs",
        ),
        pytest.param(
            ["memory-r2", *TEN_USERS, "--reward-set", "depth=1"],
            "--reward-set: .*compression",
            id="an unknown setting of rewards",
        ),
        pytest.param(
            ["memory-r2", *TEN_USERS, "--reward-set", "compression=-1"],
            "--reward-set: compression: Input should be gr",
            id="a negative setting of rewards",
        ),
    ],
)
def test_an_export_that_is_impossible_is_refused_and_writes_no_file(
    arguments: list[str], problem: str, tmp_path: Path, cli: Any
) -> None:
    exit_code, _, stderr = cli("export", "verifiers", *arguments, "--out", tmp_path / "out")

    assert exit_code == 2
    (line,) = stderr.splitlines()
    assert re.search(problem, line)
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
def test_the_optimizer_decides_which_rollouts_are_compared_and_by_which_reward(
    optimizer: str, objective: str, session_reward: str
) -> None:
    """GRPO compares the rollouts of a history, and LoGo-GRPO also those of a single session.

    `session_reward` says which questions count as the reward of a session.
    """
    training = TrainingConfig(objective=optimizer).training(seed=0)

    assert training.objective == objective
    assert training.session_reward == session_reward


def test_the_session_reward_of_logo_grpo_may_be_chosen() -> None:
    """By default it is "session"."""
    config = TrainingConfig(objective="logo-grpo").changed({"session_reward": "cumulative"})

    assert config.training(seed=0).session_reward == "cumulative"


@pytest.mark.parametrize(
    "settings",
    [{"seed": 3}, {"settings": {"seed": 3}}, {"settings": TrainingSettings(seed=3)}],
    ids=["alone", "in a dict of settings", "in an object of settings"],
)
def test_a_seed_among_the_settings_of_a_training_is_refused(settings: dict[str, object]) -> None:
    problem = "seed = 3: a training has the seed of its run; give --seed"

    with pytest.raises(UserError, match=problem):
        TrainingConfig().changed(settings)


@pytest.mark.parametrize(
    "settings",
    [{"settings": {"objective": "grpo"}}, {"settings": TrainingSettings(objective="grpo")}],
    ids=["in a dict of settings", "in an object of settings"],
)
def test_an_objective_among_the_settings_of_a_training_is_refused(
    settings: dict[str, object],
) -> None:
    problem = "objective = 'grpo' within settings has no effect"

    with pytest.raises(UserError, match=problem):
        TrainingConfig().changed(settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"objective": "grpo", "session_reward": "session"},
            "--optimizer grpo has 'trajectory'; leave it out, or give --optimizer grpo-session",
        ),
        (
            {"objective": "grpo", "settings": TrainingSettings(session_reward="cumulative")},
            "--optimizer grpo has 'trajectory'; leave it out, or give --optimizer grpo-cumulative",
        ),
        (
            {"objective": "local", "session_reward": "cumulative"},
            "--optimizer local has no global groups",
        ),
    ],
)
def test_a_session_reward_that_the_optimizer_does_not_have_is_refused(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        TrainingConfig().changed(settings)


def test_a_session_reward_that_the_optimizer_has_anyway_is_no_mistake() -> None:
    config = TrainingConfig().changed({"objective": "grpo", "session_reward": "trajectory"})

    assert config.training(seed=0).session_reward == "trajectory"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(TrainingSettings(histories=3), id="defaults of the paper"),
        pytest.param(replace(TINY_CONFIG.settings, histories=3), id="defaults of local:tiny"),
    ],
)
def test_settings_in_one_object_may_repeat_the_defaults(settings: TrainingSettings) -> None:
    """A user may give all settings as one object.

    Its objective and its session reward are defaults here, so those of the optimizer hold.
    """
    config = TINY_CONFIG.changed({"objective": "grpo-session", "settings": settings})

    training = config.training(seed=7)

    assert training == replace(settings, seed=7, objective="grpo", session_reward="session")


def test_each_setting_goes_to_the_part_of_the_configuration_that_has_it() -> None:
    """Users give all settings in one list. A setting that is nowhere else is for the trainer."""
    config = TrainingConfig.for_model("local:tiny").changed(
        {"lora": 4, "num_rollouts": 2, "tokens": 900, "horizons": [1, 2], "beta": 0.5}
    )

    assert config.lora == 4
    assert config.settings.num_rollouts == 2
    assert config.settings.curriculum.tokens == 900
    assert config.settings.curriculum.horizons == (1, 2)
    assert config.train_kwargs["beta"] == 0.5


def test_a_training_of_all_weights_has_the_numbers_of_the_released_code() -> None:
    """The authors of the paper Memory-R2 released their code."""
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
    """A LoRA adapter has few weights, which are trained in place of all weights of the model."""
    config = TrainingConfig.for_model("local:Qwen/Qwen2.5-7B").changed({"lora": 16})
    trainer = Reinforcement.parse(config.trainer_settings)

    assert trainer.learning_rate == 1e-5
    assert trainer.epochs == 1


@pytest.mark.parametrize("changes", [{}, {"lora": 4}], ids=["all weights", "a LoRA adapter"])
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


def test_a_setting_of_trl_that_mempiler_decides_is_refused() -> None:
    """TRL is a library that can take the place of our trainer. Its `epsilon` is our `clip_low`."""
    problem = "epsilon is not TRL's to decide; set --train-set clip_low=VALUE"

    with pytest.raises(mempiler.UserError, match=problem):
        TrainingConfig.for_model("local:tiny").changed({"trainer": "trl", "trl": {"epsilon": 0.1}})


def test_the_training_configurations_of_the_manual_are_valid() -> None:
    """They are the TOML blocks of docs/training.md."""
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


@pytest.fixture
def training_run(tmp_path: Path) -> Run:
    """The run of a training in which the model "openai/reader" answers the questions."""
    config = run_config("memory-env", lm="local:tiny", answer_lm="openai/reader")
    return Run(RunInputs(config), Meter(), BudgetGuard(), RunFolder(tmp_path))


def printed_options(run: Run, optimizer: str, settings: dict[str, Any]) -> list[str]:
    """Return the words of the command that the page of a training shows, to repeat it."""
    training = make_training(run.inputs.config, optimizer, settings, "local")
    options = command_options(training, "local:tiny")
    inputs = run_for_printed_command(run).inputs
    return shlex.split(command_line(inputs, "train", "memory-r2", options))


def test_the_command_on_the_page_of_a_training_names_its_answer_model_once(
    training_run: Run,
) -> None:
    """The model that answers is a setting of the training, so it is no option of the run."""
    words = printed_options(training_run, "logo-grpo", {})

    assert parse_settings(values_after(words, "--train-set"))["answer_lm"] == "openai/reader"
    assert "--answer-lm" not in words


def test_the_command_on_the_page_of_a_training_gives_the_same_training(training_run: Run) -> None:
    config = training_run.inputs.config
    changes = {"steps": 2, "tokens": None, "horizons": [2, 4], "lora": 4}
    training = make_training(config, "logo-grpo", changes, "local")
    words = printed_options(training_run, "logo-grpo", changes)

    assert values_after(words, "--optimizer") == ["logo-grpo"]
    assert values_after(words, "--trainer") == ["local"]
    repeated = make_training(
        config.with_options(answer_lm=None),
        "logo-grpo",
        parse_settings(values_after(words, "--train-set")),
        "local",
    )

    assert command_options(repeated, "local:tiny") == command_options(training, "local:tiny")


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
    """Return questions of `memory-env`, to be given as a user's own examples."""
    benchmark = mempiler.benchmark("memory-env", users=10, sessions=2)
    return benchmark.examples[:count]


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
    """A training asks `questions` after each rollout of a history.

    A rerun writes one session once more. It is asked `local_questions`.
    """
    trainset, valset, testset = examples_of_three_users

    def most_training_calls(questions: dict[str, int]) -> float:
        plan = mempiler.plan_training(
            trainset=trainset,
            valset=valset,
            testset=testset,
            metric="exact",
            lm="local:a/model",
            train_set={"steps": 1, "horizons": [1], **questions},
            progress=False,
        )
        return plan.phases["training"].high

    one_question = {"questions": 1, "local_questions": 1}
    two_questions = {**one_question, setting: 2}
    assert most_training_calls(two_questions) > most_training_calls(one_question)


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
def test_a_resumed_training_asks_the_users_answer_model_nothing_again(tmp_path: Path) -> None:
    """Rewards need a model that answers questions. Here it is an object of the user."""
    pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    start = save_demonstrated_model(tmp_path / "start", steps=2)
    examples = own_examples(3)
    answer_lm = CountingLM()
    options: dict[str, Any] = {
        "trainset": examples[:1],
        "valset": examples[1:2],
        "testset": examples[2:],
        "metric": "exact",
        "lm": f"local:{start}",
        "answer_lm": answer_lm,
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
    calls_of_training = answer_lm.calls
    resumed = mempiler.train("memory-r2", resume=str(trained.run), **options)

    assert calls_of_training > 0
    assert answer_lm.calls == calls_of_training
    assert resumed.after.score == trained.after.score


def test_the_tiny_model_is_shown_demonstrations_of_every_session() -> None:
    """A demonstration is a prompt with the right completion, from which the tiny model learns.

    A prompt shows turns of one session with their ids, such as D8:2 in the eighth session.
    """
    method = MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env")))

    shown = demonstrations.demonstrate(method, CompactAdapter(), conversations=4, sessions=8)

    session_numbers: set[str] = set()
    for demonstration in shown:
        prompt = demonstration.messages[-1]["content"]
        session_numbers.update(re.findall(r"D(\d+):", prompt))
    assert session_numbers == {"1", "2", "3", "4", "5", "6", "7", "8"}


@pytest.mark.slow
def test_the_tiny_model_is_trained_once_and_kept_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # With the usual numbers, learning from demonstrations takes minutes.
    for name, value in {"USERS": 4, "STEPS": 2, "POOR_STEPS": 1, "BATCH": 2}.items():
        monkeypatch.setattr(demonstrations, name, value)

    folder = demonstrations.tiny_folder()
    time_of_first = (folder / "config.json").stat().st_mtime_ns
    second_folder = demonstrations.tiny_folder()

    assert second_folder == folder
    assert (folder / "config.json").stat().st_mtime_ns == time_of_first
    # No temporary folder is left beside it.
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
