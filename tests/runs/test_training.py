"""Trainings: what they are made with, and exported folders, whose rewards are those of training here."""

import json
import re
import shlex
import shutil
import tomllib
from dataclasses import replace
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

from ..cli.test_train import warmed_up
from ..conftest import chat_fields
from ..run_inputs import run_config

SAMPLE = next((Path(mempiler.__file__).parent / "data" / "samples").glob("locomo*.json"))
ENV = ["--benchmark", "memory-env", "--benchmark-set", "users=10", "--benchmark-set", "sessions=2"]


def export(folder: Path, *options: str) -> Path:
    main(["export", "verifiers", "memory-r2", *(options or ENV), "--out", str(folder)])
    return folder


def test_the_package_for_verifiers_names_what_it_needs(tmp_path: Path) -> None:
    folder = export(tmp_path / "out")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "mempiler-memory-r2-memory-env"
    assert "mempiler" in project["dependencies"]
    package = folder / "mempiler_memory_r2_memory_env"
    assert {path.name for path in package.iterdir()} == {"__init__.py", "export.json"}
    compile((package / "__init__.py").read_text(), "__init__.py", "exec")
    environment = Environment.open(package / "export.json")
    assert len(environment.histories) == 6
    scored = environment.score(next(iter(environment.histories)), [])
    assert scored.reward == scored.value


def test_an_export_of_two_histories_of_one_id_is_refused(tmp_path: Path) -> None:
    rows = []
    for number in range(2):
        message = {"role": "user", "content": f"I moved to Porto, number {number}."}
        rows.append({"user": "ann", "messages": [message], "question": "Where?", "answer": "Porto"})
    data = tmp_path / "mine.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    inputs = RunInputs(run_config("jsonl", data=str(data)))
    exported = Export.of("memory-r2", inputs, "all")
    with pytest.raises(UserError, match="two different histories have the id 'ann'"):
        Environment(exported, tmp_path)


def test_an_export_takes_what_faults_cost(tmp_path: Path) -> None:
    (exported,) = export(tmp_path / "out", *ENV, "--reward-set", "format_penalty=0.5").glob(
        "*/export.json"
    )
    environment = Environment.open(exported)
    scored = environment.score(next(iter(environment.histories)), [])
    assert scored.reward == scored.value - 0.5


def test_a_file_of_one_s_own_is_named_and_not_copied(tmp_path: Path) -> None:
    data = tmp_path / "mine.json"
    shutil.copy(SAMPLE, data)
    folder = export(
        tmp_path / "out", "--benchmark", "locomo", "--data", str(data), "--sessions", "1"
    )
    (exported,) = folder.glob("*/export.json")
    turn = next(iter(Environment.open(exported).histories.values())).items[0].turns[0]
    assert all(
        turn.content not in path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    )
    data.write_text(data.read_text().replace(turn.content, "Something else."))
    with pytest.raises(mempiler.DataError, match=r"mine.json: is not the data that was exported"):
        Environment.open(exported)


def test_another_prompt_than_the_exported_one_is_refused(tmp_path: Path) -> None:
    (exported,) = export(tmp_path / "out").glob("*/export.json")
    told = json.loads(exported.read_text())
    other = {**told, "options": {**told["options"], "set": {"chunk_turns": 2}}}
    for changed, said in (
        (other, "other prompts or settings than were exported"),
        ({**told, "more": 1}, "was exported by another version: more: .*; export anew"),
        ({"method": "memory-r2"}, "was exported by another version: options: .*; export anew"),
        ({"options": {}}, "is no export"),
        ([told], "is no export"),
        (
            {**told, "options": {**told["options"], "seed": "x"}},
            r"export.json: seed = 'x': .*; export anew",
        ),
        ({**told, "reward": {"depth": 1}}, r"export.json: --reward-set: .*; export anew"),
        (
            {**told, "options": {**told["options"], "course": 1}},
            "unknown settings course; export anew",
        ),
    ):
        (tmp_path / "export.json").write_text(json.dumps(changed))
        with pytest.raises(mempiler.ProgramError, match=said):
            Environment.open(tmp_path / "export.json")


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        (["--benchmark", "memoryquest"], "memory-r2", "memoryquest is scored by a judge"),
        (ENV, "turn-rag", "turn-rag writes without a language model"),
        (
            ["--benchmark", "palbench.dialogue"],
            "memory-r2",
            "palbench.dialogue is a simulated conversation",
        ),
        ([*ENV, "--adapter", "auto"], "memory-r2", "--adapter auto asks an endpoint"),
        ([*ENV, "--max-usd", "1"], "memory-r2", "No such option '--max-usd'"),
        ([*ENV, "--reward-set", "depth=1"], "memory-r2", "--reward-set: .*compression"),
        (
            [*ENV, "--reward-set", "compression=-1"],
            "memory-r2",
            "--reward-set: compression: Input should be gr",
        ),
    ],
)
def test_an_export_that_is_impossible_is_one_line(options, method, message, tmp_path, cli) -> None:
    code, _, err = cli("export", "verifiers", method, *options, "--out", tmp_path / "out")
    (line,) = err.splitlines()
    assert code == 2
    assert re.search(message, line)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_objective_has_its_groups_and_its_reward() -> None:
    for name, choice in OBJECTIVES.items():
        found = TrainingConfig(objective=name).training(7)
        assert found.objective == choice.objective
        assert found.session_reward == (choice.session_reward or "session")
        assert found.seed == 7
    given = TrainingConfig(objective="logo-grpo").changed({"session_reward": "cumulative"})
    assert given.training(0).session_reward == "cumulative"


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


def test_a_recorded_session_reward_that_is_the_one_of_the_objective_is_no_mistake() -> None:
    given = {"objective": "grpo", "session_reward": "trajectory"}
    assert TrainingConfig().changed(given).training(0).session_reward == "trajectory"


@pytest.mark.parametrize(
    "settings", [TrainingSettings(histories=3), replace(TINY_CONFIG.settings, histories=3)]
)
def test_training_settings_in_one_object_may_keep_what_is_no_change(
    settings: TrainingSettings,
) -> None:
    changed = TINY_CONFIG.changed({"objective": "grpo-session", "settings": settings})
    assert changed.training(7) == replace(
        settings, seed=7, objective="grpo", session_reward="session"
    )


def test_settings_go_where_they_belong():
    before = TrainingConfig.for_model("local:tiny")
    course = before.changed(
        {"lora": 4, "num_rollouts": 2, "tokens": 900, "horizons": [1, 2], "beta": 0.5}
    )
    assert course.lora == 4
    assert course.settings.num_rollouts == 2
    assert course.settings.curriculum.tokens == 900
    assert course.settings.curriculum.horizons == (1, 2)
    assert course.train_kwargs == {**before.train_kwargs, "beta": 0.5}


def test_a_training_of_all_weights_has_the_released_numbers():
    course = TrainingConfig.for_model("local:Qwen/Qwen2.5-7B")
    trainer = Reinforcement.parse(course.trainer_settings)
    assert trainer.learning_rate == 2e-6
    assert trainer.epochs == 2
    assert trainer.batch_size == 2048
    assert trainer.weight_decay == 0.01
    assert trainer.old_logprobs == "recomputed"
    assert course.answer_tokens == 2048
    assert course.settings.histories == 1
    assert [course.settings.curriculum.steps_of(stage) for stage in range(3)] == [10, 5, 5]


def test_an_adapter_has_a_rate_and_epochs_of_its_own_unless_they_are_set():
    course = TrainingConfig.for_model("local:Qwen/Qwen2.5-7B").changed({"lora": 16})
    trainer = Reinforcement.parse(course.trainer_settings)
    assert trainer.learning_rate == 1e-5
    assert trainer.epochs == 1
    assert trainer.batch_size == 2048
    longer = Reinforcement.parse(course.changed({"epochs": 3}).trainer_settings)
    assert longer.learning_rate == 1e-5
    assert longer.epochs == 3


@pytest.mark.parametrize("changes", [{}, {"lora": 4}])
def test_the_tiny_model_has_numbers_of_its_own(changes):
    course = TrainingConfig.for_model("local:tiny").changed(changes)
    trainer = Reinforcement.parse(course.trainer_settings)
    assert trainer.learning_rate == 2e-4
    assert trainer.epochs == 2
    assert trainer.batch_size == 48
    assert trainer.weight_decay == 0.0
    assert trainer.old_logprobs == "sampled"
    assert course.answer_tokens == 96
    assert course.settings.histories == 2


def test_settings_of_trl_that_change_nothing_are_refused_before_the_warm_up():
    with pytest.raises(
        mempiler.UserError, match="epsilon is not TRL's to decide; set --train-set clip_low=VALUE"
    ):
        TrainingConfig.for_model("local:tiny").changed({"trainer": "trl", "trl": {"epsilon": 0.1}})


def test_the_configurations_of_the_manual_are_taken():
    manual = (Path(mempiler.__file__).parent / "docs" / "training.md").read_text(encoding="utf-8")
    configurations = [
        tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", manual, re.DOTALL)
    ]
    assert len(configurations) >= 2
    for configuration in configurations:
        training = configuration["training"]
        settings = {**training["settings"], "trainer": training["trainer"]}
        given = Reinforcement.parse(
            TrainingConfig.for_model("local:a/model").changed(settings).trainer_settings
        )
        assert given.trl == settings["trl"]


def test_the_command_on_the_page_of_a_training_repeats_it(tmp_path: Path) -> None:
    config = run_config("memory-env", lm="local:tiny", answer_lm="openai/reader", test=4, workers=1)
    changes = {"steps": 2, "tokens": None, "horizons": [2, 4], "lora": 4}
    training = make_training(config, "logo-grpo", changes, "local")
    run = Run(RunInputs(config), Meter(), BudgetGuard(), RunFolder(tmp_path))
    options = command_options(training, "local:tiny")
    words = shlex.split(
        command_line(run_for_printed_command(run).inputs, "train", "memory-r2", options)
    )
    assert not {"--answer-lm", "--max-failure-rate"} & set(words)
    assert words[words.index("--optimizer") + 1] == "logo-grpo"
    pairs = [words[place + 1] for place, word in enumerate(words) if word == "--train-set"]
    assert parse_settings(pairs).items() >= {**changes, "answer_lm": "openai/reader"}.items()
    config = config.with_options(answer_lm=None)
    repeated = make_training(
        config, "logo-grpo", parse_settings(pairs), words[words.index("--trainer") + 1]
    )
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
    with pytest.raises(mempiler.UserError, match=message):
        mempiler.plan_training(
            program, **{"benchmark": "memory-env", "lm": "local:tiny", "progress": False, **options}
        )


def own_examples(count: int) -> list[dspy.Example]:
    """Return questions of the made-up world, as a user's own examples: a model has to answer them."""
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


def test_a_plan_asks_rollouts_and_reruns_as_many_questions_as_each_may_be_asked() -> None:
    examples = own_examples(40)
    users = list(dict.fromkeys(example.history.id for example in examples))
    of_users = [
        [example for example in examples if example.history.id == user] for user in users[:3]
    ]

    def most_training_calls(**train_set: Any) -> float:
        plan = mempiler.plan_training(
            trainset=of_users[0],
            valset=of_users[1],
            testset=of_users[2],
            metric="exact",
            lm="local:a/model",
            train_set={"steps": 1, "horizons": [1], **train_set},
            progress=False,
        )
        return plan.phases["training"].high

    assert len(of_users[0]) > 1
    one_each = most_training_calls(questions=1, local_questions=1)
    assert most_training_calls(questions=2, local_questions=1) > one_each
    assert most_training_calls(questions=1, local_questions=2) > one_each


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
def test_an_object_answers_in_a_whole_training(tmp_path: Path) -> None:
    pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    start = warmed_up(tmp_path / "start", 8, steps=2)
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
    result = mempiler.train("memory-r2", **options)
    calls = reader.calls
    assert calls > 0
    again = mempiler.train("memory-r2", resume=str(result.run), **options)
    assert reader.calls == calls
    assert again.after.score == result.after.score


def test_every_session_is_shown() -> None:
    method = MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env")))
    shown = demonstrations.demonstrate(method, CompactAdapter(), 4)
    ids = {
        int(id) for messages, _ in shown for id in re.findall(r"D(\d+):", messages[-1]["content"])
    }
    assert ids == set(range(1, 9))


@pytest.mark.slow
def test_the_tiny_model_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in {"USERS": 4, "STEPS": 2, "POOR_STEPS": 1, "BATCH": 2}.items():
        monkeypatch.setattr(demonstrations, name, value)
    folder = demonstrations.tiny_folder()
    made = (folder / "config.json").stat().st_mtime_ns
    assert demonstrations.tiny_folder() == folder
    assert (folder / "config.json").stat().st_mtime_ns == made
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
