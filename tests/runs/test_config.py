"""The configuration of a run: its values, its file, and what a resumed run has in common.

A configuration can be written as a TOML file. `mempiler show RUN --config` writes the file that
repeats a run, and `--config FILE` reads it.
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import UserError
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.optimizers.logo_grpo.settings import Curriculum
from mempiler.optimizers.logo_grpo.training_config import TrainingConfig
from mempiler.programs.catalog import build
from mempiler.runs.api import make_compilation
from mempiler.runs.config import CONFIG_FIELDS, DataConfig, RunConfig
from mempiler.runs.config_file import config_toml, parse_config
from mempiler.runs.folder import RunFolder
from mempiler.runs.options import RunOptions, make_inputs
from mempiler.runs.recorded_config import recorded_toml
from mempiler.runs.repeating import BENCHMARK_OPTIONS, FREE_ON_RESUME, RECORDED_NAMES, resume_key
from mempiler.runs.setting_pairs import parse_settings
from pydantic_core import to_jsonable_python

from ..run_inputs import run_config, run_inputs

UNUSUAL_OPTIONS: dict[str, Any] = {
    "data": 'a "file".json',
    "metric": "f1",
    "categories": "2,4",
    "benchmark_set": {
        "size": "1M",
        "a name": [1, 2.5, True],
        "a-b": None,
        "nested": {"x": "é\n\x7f"},
    },
    "train": 0,
    "seed": -1,
    "lm": "openai/x",
    "api_base": "http://localhost:1",
    "lm_set": {"temperature": 0, "stop": None},
    "answer_lm": "openai/y",
    "set": {"k": 3},
    "allow_code": True,
    "max_usd": 2.5,
    "max_calls": 10,
    "workers": "host:1",
    "timeout": 3.0,
    "traces": None,
    "resume": "last",
}
"""Options with values that are not their defaults, some of which are awkward in TOML."""


@pytest.mark.parametrize("name", UNUSUAL_OPTIONS)
def test_a_configuration_with_one_option_survives_being_written_and_read(name: str) -> None:
    """Some values are awkward in TOML, such as None and a text with quotation marks."""
    config = run_config("locomo", **{name: UNUSUAL_OPTIONS[name]})

    assert parse_config(config_toml(config)) == config


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="defaults"),
        pytest.param(UNUSUAL_OPTIONS, id="many options"),
        # A metric may also be given as the option `metric`, and a file keeps the two apart.
        pytest.param({"benchmark_set": {"metric": "f1"}}, id="a metric as benchmark setting"),
    ],
)
def test_a_configuration_survives_being_written_and_read(options: dict[str, Any]) -> None:
    config = run_config("locomo", **options)

    assert parse_config(config_toml(config)) == config


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("seed", "a", "seed = 'a': input should be a valid integer"),
        ("threads", True, "threads = True: input should be a valid integer"),
        ("threads", 0, "threads = 0: input should be greater than or equal to 1"),
        (
            "max_failure_rate",
            1.5,
            "max_failure_rate = 1.5: input should be less than or equal to 1",
        ),
        ("timeout", float("nan"), "timeout = nan: input should be "),
        ("data", 3, "data = 3: input should be a valid string"),
        ("set", 3, "set = 3: input should be a valid dictionary"),
        ("workers", 1.5, "workers = 1.5: input should be a valid integer or a valid string"),
        ("workers", "many", "workers = 'many': give a number of processes, or HOST:PORT"),
        ("traces", "some", "traces = 'some': give a number, all or none"),
        ("traces", "--5", "traces = '--5': give a number, all or none"),
        ("max_calls", 2.5, "max_calls = 2.5: give a whole number"),
        ("allow_code", 1, "allow_code = 1: input should be a valid boolean"),
        ("max_usd", True, "max_usd = True: give a finite number"),
        ("sead", 3, "unknown option 'sead'; did you mean 'seed'?"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused_in_one_line(
    option: str, value: Any, message: str
) -> None:
    with pytest.raises(UserError) as error:
        run_inputs("locomo", **{option: value})

    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["metric", "categories"])
def test_a_setting_of_the_benchmark_that_is_also_given_as_an_option_is_refused(name: str) -> None:
    with pytest.raises(UserError) as error:
        run_inputs("locomo", **{name: "1", "benchmark_set": {name: "2"}})

    assert f"--{name} and --benchmark-set {name}=... set the same thing" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("group", "name", "settings"),
    [
        ("curriculum", "horizons", {"curriculum": {"steps": 3}, "horizons": (1, 2)}),
        ("settings", "horizons", {"settings": {}, "horizons": (1, 2)}),
        ("train_kwargs", "beta", {"train_kwargs": {"epochs": 1}, "beta": 0.5}),
    ],
)
def test_a_training_setting_is_not_given_both_in_a_group_and_on_its_own(
    group: str, name: str, settings: dict[str, Any]
) -> None:
    """The group `curriculum`, for example, contains the setting `horizons`.

    If both are given, nobody can tell which `horizons` the user wants.
    """
    with pytest.raises(UserError) as error:
        TrainingConfig().changed(settings)

    message = f"settings of the training: {group} contains {name}; give only one of them"
    assert str(error.value) == message


def test_a_group_of_training_settings_is_replaced_as_a_whole() -> None:
    """The group `curriculum` also has a number of steps, which gets its default again.

    `beta` is in no group: it is a setting of the job that changes the weights.
    """
    config = TrainingConfig().changed({"curriculum": {"horizons": (1, 2)}, "beta": 0.5})

    assert config.settings.curriculum == Curriculum(horizons=(1, 2))
    assert config.train_kwargs == {"beta": 0.5}


def test_a_misspelled_setting_of_a_section_is_refused_with_the_right_name() -> None:
    """The classes of the sections, such as `DataConfig`, can be used without a file, too."""
    misspelled: Any = {"sead": 3}

    with pytest.raises(UserError, match="unknown setting 'sead'; did you mean 'seed'"):
        DataConfig(benchmark="locomo", **misspelled)


def test_a_configuration_without_a_benchmark_is_refused() -> None:
    no_options: Any = {}

    with pytest.raises(UserError, match="benchmark is missing"):
        RunConfig.from_options(**no_options)


def test_python_functions_and_the_command_line_take_the_same_options() -> None:
    """`RunOptions` are the options of Python functions, `CONFIG_FIELDS` those of commands."""
    # Limits are an object in Python. The metric is an argument of its own there, and `repeat` is
    # only for commands.
    python_options = RunOptions.__annotations__.keys() - {"limits", "progress"}
    command_options = CONFIG_FIELDS.keys() - {"metric", "repeat"}

    assert python_options == command_options


def test_every_option_is_known_to_decide_the_result_of_a_run_or_not() -> None:
    """A run can be resumed only if the options that decide its result are as they were.

    `resume_key` has these options. Others, such as limits, are in `FREE_ON_RESUME`. A new option
    must be in one of the two.
    """
    deciding_options = CONFIG_FIELDS.keys() - FREE_ON_RESUME - set(BENCHMARK_OPTIONS)
    recorded_names = {RECORDED_NAMES.get(name, name) for name in deciding_options}

    key = resume_key(run_inputs("locomo"))

    # The options of the benchmark are together in `options`.
    assert key.keys() == {*recorded_names, "options"}
    assert CONFIG_FIELDS.keys() >= FREE_ON_RESUME


@dataclass(frozen=True)
class FinishedEvaluation:
    """An evaluation at a server, and the configuration file that `show --config` wrote of it."""

    server: Any
    run_id: str
    score: float
    file: Path

    @property
    def command(self) -> list[str]:
        """The words of the command that repeats the evaluation with its file."""
        address = ["--api-base", self.server.url]
        return ["evaluate", "turn-rag", "--config", str(self.file), *address, "--json"]


@pytest.fixture
def finished_evaluation(
    stub: Any, mempiler_cli: Any, cli: Any, tmp_path: Path
) -> FinishedEvaluation:
    """An evaluation with settings of several kinds, among them `--max-calls 50`."""
    server = stub()
    options = ["--split", "test", "--set", "k=3", "--lm-set", "top_k=5"]
    options += ["--categories", "1,2,4", "--max-calls", "50"]
    evaluated = mempiler_cli(server, "evaluate", "turn-rag", *options, test=4)
    assert evaluated.code == 0, evaluated.err

    run_id = evaluated.printed_json["run_id"]
    exit_code, toml, error_output = cli("show", run_id, "--config")
    assert exit_code == 0, error_output
    file = tmp_path / "run.toml"
    file.write_text(toml)
    return FinishedEvaluation(server, run_id, evaluated.printed_json["score"], file)


def test_the_configuration_file_of_a_run_names_its_command_but_not_its_server(
    finished_evaluation: FinishedEvaluation,
) -> None:
    """The server listens at 127.0.0.1, which would mean nothing on another machine."""
    toml = finished_evaluation.file.read_text()

    assert toml.startswith("# mempiler evaluate turn-rag --config FILE\n")
    assert "127.0.0.1" not in toml


def test_a_finished_evaluation_is_resumed_with_its_configuration_file_and_asks_nothing(
    finished_evaluation: FinishedEvaluation, cli: Any
) -> None:
    server = finished_evaluation.server
    requests_before = len(server.texts)

    exit_code, output, error_output = cli(
        *finished_evaluation.command, "--resume", finished_evaluation.run_id
    )

    assert exit_code == 0, error_output
    assert json.loads(output)["score"] == finished_evaluation.score
    assert len(server.texts) == requests_before


def test_an_evaluation_is_repeated_with_the_settings_in_its_configuration_file(
    finished_evaluation: FinishedEvaluation, cli: Any
) -> None:
    """The first run was started with several options, among them `--max-calls 50`."""
    exit_code, output, error_output = cli(*finished_evaluation.command)

    assert exit_code == 0, error_output
    first_record = RunFolder.open(finished_evaluation.run_id).read()
    second_record = RunFolder.open(json.loads(output)["run_id"]).read()
    assert second_record["settings"] == first_record["settings"]
    assert first_record["parameters"]["limit.max_calls"] == 50
    assert second_record["parameters"]["limit.max_calls"] == 50


def compiled_run(cli: Any, *options: str) -> str:
    """Compile turn RAG with these options; return the run's folder."""
    exit_code, output, error_output = cli("compile", "turn-rag", *options, "--force", "--json")
    assert exit_code == 0, error_output
    return json.loads(output)["run"]


def test_a_compile_is_repeated_with_the_settings_in_its_configuration_file(
    cli: Any, tmp_path: Path
) -> None:
    sizes = ["--benchmark", "locomo", "--train", "8", "--dev", "2", "--test", "2"]
    optimizer = ["--optimizer", "labeled", "--optimizer-set", "max_labeled_demos=2"]
    first_run = compiled_run(cli, *sizes, *optimizer, "--stage", "read")
    _, toml, _ = cli("show", first_run, "--config")
    file = tmp_path / "run.toml"
    file.write_text(toml)

    second_run = compiled_run(cli, "--config", str(file))

    first_settings = RunFolder.open(first_run).read()["settings"]
    second_settings = RunFolder.open(second_run).read()["settings"]
    assert second_settings == first_settings
    assert second_settings["optimizer"] == "labeled"


@pytest.mark.parametrize(
    ("lm", "settings"),
    [
        pytest.param("local:tiny", {}, id="defaults"),
        pytest.param(
            "local:x",
            {
                "steps": 3,
                "tokens": None,
                "horizons": [2],
                "lora": 16,
                "compression": 0.2,
                "trainer": "trl",
            },
            id="numbers, None and a list",
        ),
        pytest.param(
            "local:x",
            {
                "answer_lm": "openai/y",
                "beta": 0.5,
                "trainer": "trl",
                "trl": {"use_vllm": True, "fsdp": True},
            },
            id="settings of the library TRL",
        ),
    ],
)
def test_the_configuration_file_of_a_training_has_its_settings(
    lm: str, settings: dict[str, Any]
) -> None:
    """A training keeps a record in its folder, and the file is made from the record."""
    defaults = TrainingConfig.for_model(lm)
    training = defaults.changed({"objective": "grpo-session", **settings})
    record = {
        "command": "train",
        "program": "memory-r2",
        **resume_key(run_inputs("memory-env", lm=lm)),
        **to_jsonable_python(training),
    }

    toml = recorded_toml(RunFolder.create("train-x", record))

    assert defaults.changed(training_settings(toml)) == training


def training_settings(toml: str) -> dict[str, Any]:
    """Return the settings of the section `[training]` of a file, as `--train-set` takes them."""
    section = tomllib.loads(toml)["training"]
    settings = section.get("settings", {})
    if isinstance(settings, list):
        settings = parse_settings(settings)
    return {"objective": section["optimizer"], **settings}


def test_a_run_on_questions_that_are_python_objects_has_no_configuration_file() -> None:
    """A file can name a benchmark, but it cannot hold a list of examples."""
    questions = mempiler.benchmark("locomo").test[:2]
    evaluation = mempiler.evaluate("turn-rag", questions, metric="f1", progress=False)

    with pytest.raises(UserError, match=r"made in Python \(questions\)"):
        recorded_toml(RunFolder.open(str(evaluation.run_id)))


def test_a_run_with_a_program_and_a_model_that_are_python_objects_has_no_configuration_file() -> (
    None
):
    """A file can only name programs and models. Nevertheless the run can be resumed in Python."""
    program = build("turn-rag", k=3)
    lm = dspy.LM("own/model", engine=OfflineEngine())
    evaluation = mempiler.evaluate(program, benchmark="locomo", test=2, lm=lm, progress=False)
    folder = RunFolder.open(str(evaluation.run_id))

    with pytest.raises(UserError, match=r"made in Python \(models, program\); repeat it there"):
        recorded_toml(folder)
    # The settings decide whether the run may be resumed, which it may with such objects, too.
    assert "python_objects" not in folder.read()["settings"]


def make_labeled_few_shot(metric: Any) -> Any:
    """A user's function that makes a teleprompter."""
    return dspy.LabeledFewShot(k=1)


class OwnGepa(mempiler.optimizers.Gepa):
    """A user's own class of optimizers."""


@pytest.mark.parametrize(
    ("optimizer", "has_python_objects"),
    [
        pytest.param(make_labeled_few_shot, True, id="a function"),
        pytest.param(OwnGepa(max_metric_calls=5), True, id="a class of the user's"),
        pytest.param(
            mempiler.optimizers.Gepa(extra={"logger": object()}), True, id="an object in a setting"
        ),
        pytest.param(
            mempiler.optimizers.Gepa(max_metric_calls=5, extra={"use_merge": (1, {"a": 2})}),
            False,
            id="plain settings",
        ),
    ],
)
def test_only_an_optimizer_with_plain_settings_can_be_written_into_a_file(
    optimizer: Any, has_python_objects: bool
) -> None:
    """A file can hold the name of an optimizer and its settings, but no objects of Python."""
    assert make_compilation(optimizer).has_python_objects is has_python_objects


def test_a_compile_with_an_optimizer_that_is_a_python_function_has_no_configuration_file() -> None:
    compiled = mempiler.compile(
        "turn-rag",
        optimizer=make_labeled_few_shot,
        benchmark="locomo",
        train=4,
        dev=2,
        test=2,
        force=True,
        progress=False,
    )

    with pytest.raises(UserError, match=r"made in Python \(optimizer\)"):
        recorded_toml(RunFolder(compiled.run))


def test_the_configuration_file_of_a_training_leaves_out_min_n() -> None:
    """`train` has no option `--min-n`, so it would refuse a file with it."""
    record = {
        "command": "train",
        "program": "memory-r2",
        **to_jsonable_python(TrainingConfig()),
        "optimizer": "bootstrap",
        **resume_key(run_inputs("memory-env", lm="local:x")),
        "min_n": 5,
    }

    toml = recorded_toml(RunFolder.create("train-x", record))

    reason = "is left out: mempiler train has no option for it."
    assert f"# execution.min_n {reason}\n" in toml
    assert "min_n" not in tomllib.loads(toml).get("execution", {})


def write_answers(path: Path) -> None:
    """Write the answer "x" to every question of LoCoMo's sample into a file."""
    lines = []
    for question in mempiler.benchmark("locomo").examples:
        lines.append(json.dumps({"id": str(question.id), "answer": "x"}))
    path.write_text("\n".join(lines))


def test_the_configuration_file_of_scored_answers_names_their_file_without_its_folder(
    cli: Any, tmp_path: Path
) -> None:
    """The answers were made elsewhere; their file takes the place of a program."""
    write_answers(tmp_path / "answers.jsonl")
    exit_code, output, error_output = cli(
        "evaluate", str(tmp_path / "answers.jsonl"), "--benchmark", "locomo", "--json"
    )
    assert exit_code == 0, error_output

    _, toml, _ = cli("show", json.loads(output)["run_id"], "--config")

    first_line, second_line = toml.splitlines()[:2]
    assert first_line == "# mempiler evaluate answers.jsonl --config FILE"
    assert second_line.startswith("# A run keeps no folder of a file of answers.")


def test_a_list_of_categories_is_written_as_a_setting_of_the_benchmark() -> None:
    """The option `--categories` takes a text such as "1,2", and only a setting takes a list."""
    record = {
        "command": "evaluate",
        "program": "turn-rag",
        "part": "all",
        **resume_key(run_inputs("locomo")),
        "options": {"categories": [1, 2]},
    }

    toml = recorded_toml(RunFolder.create("evaluate-x", record))

    assert "[data.settings]\ncategories = [1, 2]\n" in toml


@pytest.mark.parametrize("function", [mempiler.compile, mempiler.plan])
def test_compile_and_plan_refuse_an_answer_model(function: Any) -> None:
    """A compile would never ask it."""
    with pytest.raises(UserError, match="answer_lm: compile does not take it; leave it out"):
        function("turn-rag", benchmark="locomo", answer_lm="offline", progress=False)


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        (2, "2"),
        (0, "0"),
        ([2, 4], "2,4"),
        ("2,4", "2,4"),
        ((), None),
        ("", None),
        (None, None),
    ],
)
def test_categories_of_questions_are_a_number_a_list_or_a_text(
    categories: Any, expected: str | None
) -> None:
    inputs = make_inputs({"benchmark": "locomo", "categories": categories})

    assert inputs.config.data.categories == expected


def test_a_category_that_is_no_whole_number_is_refused() -> None:
    with pytest.raises(UserError, match=r"categories = 2.5: give one, or a list"):
        make_inputs({"benchmark": "locomo", "categories": 2.5})


@dataclass(frozen=True)
class EvaluatedRun:
    """The score of an evaluation, and the folder of its run."""

    score: float
    folder: Path


@pytest.fixture
def run_at_temperature_0() -> EvaluatedRun:
    """An evaluation of two questions at temperature 0."""
    evaluation = mempiler.evaluate(
        "turn-rag", benchmark="locomo", test=2, lm_set={"temperature": 0}, progress=False
    )
    return EvaluatedRun(evaluation.score, RunFolder.open(str(evaluation.run_id)).path)


def test_a_run_to_resume_may_be_given_as_a_path(run_at_temperature_0: EvaluatedRun) -> None:
    resumed = mempiler.evaluate(
        "turn-rag",
        benchmark="locomo",
        test=2,
        lm_set={"temperature": 0},
        resume=run_at_temperature_0.folder,
        progress=False,
    )

    assert resumed.score == run_at_temperature_0.score


def test_a_run_to_replay_may_be_given_as_a_path(run_at_temperature_0: EvaluatedRun) -> None:
    """A replay takes the answers of its model, and the model's settings, from another run."""
    replayed = mempiler.evaluate(
        "turn-rag",
        benchmark="locomo",
        test=2,
        lm_set={},
        replay=run_at_temperature_0.folder,
        progress=False,
    )

    assert replayed.score == run_at_temperature_0.score


def test_a_run_is_not_replayed_with_other_settings_of_its_model(
    run_at_temperature_0: EvaluatedRun,
) -> None:
    """The recorded answers are not those that the model would give with these settings."""
    options = {
        "benchmark": "locomo",
        "lm_set": {"temperature": 1},
        "replay": run_at_temperature_0.folder,
    }

    with pytest.raises(UserError, match="ran with --lm-set"):
        make_inputs(options)
