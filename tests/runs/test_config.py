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


def test_a_file_of_the_defaults_is_read_as_the_same_configuration() -> None:
    config = run_config("locomo")

    toml = config_toml(config)

    assert parse_config(toml) == config


@pytest.mark.parametrize("name", UNUSUAL_OPTIONS)
def test_a_file_with_one_option_is_read_as_the_same_configuration(name: str) -> None:
    """Some values are awkward in TOML, such as None and a text with quotation marks."""
    config = run_config("locomo", **{name: UNUSUAL_OPTIONS[name]})

    toml = config_toml(config)

    assert parse_config(toml) == config


def test_a_file_with_many_options_is_read_as_the_same_configuration() -> None:
    config = run_config("locomo", **UNUSUAL_OPTIONS)

    toml = config_toml(config)

    assert parse_config(toml) == config


def test_a_metric_that_is_a_setting_of_the_benchmark_is_written_as_such_a_setting() -> None:
    """A metric may also be given as the option `metric`; a file keeps the two apart."""
    config = run_config("locomo", benchmark_set={"metric": "f1"})

    toml = config_toml(config)

    assert parse_config(toml) == config


@pytest.mark.parametrize(
    ("option", "value", "expected"),
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
        ("max_tokens", 1.5, "max_tokens = 1.5: give a whole number"),
        ("allow_code", 1, "allow_code = 1: input should be a valid boolean"),
        ("max_usd", True, "max_usd = True: give a finite number"),
        ("sead", 3, "unknown option 'sead'; did you mean 'seed'?"),
    ],
)
def test_a_wrong_value_names_option_value_and_what_is_expected(
    option: str, value: Any, expected: str
) -> None:
    with pytest.raises(UserError) as error:
        run_inputs("locomo", **{option: value})

    assert str(error.value).startswith(expected)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "value"), [("metric", "f1"), ("categories", "2")])
def test_a_setting_of_the_benchmark_that_is_given_twice_is_refused(name: str, value: str) -> None:
    with pytest.raises(UserError) as error:
        run_inputs("locomo", **{name: value, "benchmark_set": {name: "1"}})

    assert f"--{name} and --benchmark-set {name}=... set the same thing" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"steps": "abc"}, "a setting of the training: steps: Input should be a valid integer"),
        ({"horizons": [8, "x"]}, "a setting of the training: horizons.1: Input should be a valid"),
        ({"curriculum": 3}, "a setting of the training: curriculum: Input should be a dictionary"),
    ],
)
def test_a_wrong_setting_of_a_training_is_named_as_it_was_given(
    settings: dict[str, Any], expected: str
) -> None:
    """A training takes its settings in one mapping, and some of them are lists."""
    with pytest.raises(UserError) as error:
        TrainingConfig().changed(settings)

    assert str(error.value).startswith(expected)


@pytest.mark.parametrize(
    ("group", "name", "settings"),
    [
        ("curriculum", "horizons", {"curriculum": {"steps": 3}, "horizons": (1, 2)}),
        ("reward", "compression", {"compression": 0.2, "reward": {}}),
        ("settings", "curriculum", {"settings": {}, "curriculum": {"steps": 3}}),
        ("settings", "horizons", {"settings": {}, "horizons": (1, 2)}),
        ("train_kwargs", "beta", {"train_kwargs": {"epochs": 1}, "beta": 0.5}),
    ],
)
def test_a_group_of_training_settings_and_a_setting_in_it_are_not_given_together(
    group: str, name: str, settings: dict[str, Any]
) -> None:
    """`curriculum`, for example, is a group that contains `horizons`.

    If both are given, nobody can tell which `horizons` the user wants.
    """
    with pytest.raises(UserError) as error:
        TrainingConfig().changed(settings)

    message = f"settings of the training: {group} contains {name}; give only one of them"
    assert str(error.value) == message


def test_a_group_of_training_settings_is_replaced_as_a_whole() -> None:
    """What is not given in the group has its default. `beta` is a setting of the training job."""
    config = TrainingConfig().changed({"curriculum": {"horizons": (1, 2)}, "beta": 0.5})

    assert config.settings.curriculum == Curriculum((1, 2))
    assert config.train_kwargs == {"beta": 0.5}


def test_an_unknown_setting_of_a_section_is_refused() -> None:
    settings: Any = {"sead": 3}

    with pytest.raises(UserError, match="unknown setting 'sead'; did you mean 'seed'"):
        DataConfig(benchmark="locomo", **settings)


def test_a_configuration_without_a_benchmark_is_refused() -> None:
    options: Any = {}

    with pytest.raises(UserError, match="benchmark is missing"):
        RunConfig.from_options(**options)


def test_python_functions_have_the_options_of_the_configuration() -> None:
    """The command line takes its options from `CONFIG_FIELDS`, and Python from `RunOptions`."""
    # Some options are of one kind only: limits are an object in Python, and the metric is an
    # argument of its own.
    python_options = RunOptions.__annotations__.keys() - {"limits", "progress"}
    configured_options = CONFIG_FIELDS.keys() - {"metric", "repeat"}

    assert python_options == configured_options


def test_every_option_either_is_free_on_resume_or_must_be_as_it_was() -> None:
    """A run may be resumed only with the options in `resume_key`: they decide its result.

    Options that decide nothing, such as limits, are free. A new option must be in one of the two.
    """
    options = CONFIG_FIELDS.keys() - FREE_ON_RESUME - set(BENCHMARK_OPTIONS)
    recorded_names = {RECORDED_NAMES.get(name, name) for name in options}

    key = resume_key(run_inputs("locomo"))

    # Those of the benchmark are together in `options`.
    assert key.keys() == {*recorded_names, "options"}
    assert CONFIG_FIELDS.keys() >= FREE_ON_RESUME


@dataclass(frozen=True)
class RepeatedEvaluation:
    """An evaluation at a server, and the file with which `show --config` says how to repeat it."""

    server: Any
    run_id: str
    score: float
    toml: str
    file: Path

    @property
    def command(self) -> list[str]:
        """The words of the command that repeats it."""
        address = ["--api-base", self.server.url]
        return ["evaluate", "turn-rag", "--config", str(self.file), *address, "--json"]


@pytest.fixture
def evaluation_to_repeat(
    stub: Any, mempiler_cli: Any, cli: Any, tmp_path: Path
) -> RepeatedEvaluation:
    """An evaluation with settings of several kinds, and its file."""
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
    return RepeatedEvaluation(server, run_id, evaluated.printed_json["score"], toml, file)


def test_the_file_of_an_evaluation_names_its_command_but_not_its_server(
    evaluation_to_repeat: RepeatedEvaluation,
) -> None:
    """The server listens at 127.0.0.1."""
    toml = evaluation_to_repeat.toml

    assert toml.startswith("# mempiler evaluate turn-rag --config FILE\n")
    assert "127.0.0.1" not in toml


def test_an_evaluation_is_resumed_with_its_file(
    evaluation_to_repeat: RepeatedEvaluation, cli: Any
) -> None:
    """A resumed run asks only for answers that its folder lacks; here it lacks none."""
    server = evaluation_to_repeat.server
    requests_before = len(server.texts)

    exit_code, output, error_output = cli(
        *evaluation_to_repeat.command, "--resume", evaluation_to_repeat.run_id
    )

    assert exit_code == 0, error_output
    assert json.loads(output)["score"] == evaluation_to_repeat.score
    # All answers were there already.
    assert len(server.texts) == requests_before


def test_the_file_of_an_evaluation_gives_an_identical_run(
    evaluation_to_repeat: RepeatedEvaluation, cli: Any
) -> None:
    """The first run was started with several options, among them `--max-calls 50`."""
    exit_code, output, error_output = cli(*evaluation_to_repeat.command)

    assert exit_code == 0, error_output
    first_record = RunFolder.open(evaluation_to_repeat.run_id).read()
    second_record = RunFolder.open(json.loads(output)["run_id"]).read()
    assert second_record["settings"] == first_record["settings"]
    assert first_record["parameters"]["limit.max_calls"] == 50
    assert second_record["parameters"]["limit.max_calls"] == 50


def compiled_run(cli: Any, *options: str) -> str:
    """Compile turn RAG with these options; return the run's folder."""
    exit_code, output, error_output = cli("compile", "turn-rag", *options, "--force", "--json")
    assert exit_code == 0, error_output
    return json.loads(output)["run"]


def test_the_file_of_a_compile_gives_an_identical_run(cli: Any, tmp_path: Path) -> None:
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
        ("local:tiny", {}),
        (
            "local:x",
            {
                "steps": 3,
                "tokens": None,
                "horizons": [2],
                "lora": 16,
                "compression": 0.2,
                "trainer": "trl",
            },
        ),
        (
            "local:x",
            {
                "answer_lm": "openai/y",
                "beta": 0.5,
                "trainer": "trl",
                "trl": {"use_vllm": True, "fsdp": True},
            },
        ),
    ],
)
def test_the_file_of_a_training_has_its_settings(lm: str, settings: dict[str, Any]) -> None:
    """The record is what a training keeps in its folder; the file is made from it."""
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


def test_a_run_with_questions_made_in_python_has_no_file() -> None:
    """A command that reads a file can repeat no run with objects of Python."""
    questions = mempiler.benchmark("locomo").test[:2]
    evaluation = mempiler.evaluate("turn-rag", questions, metric="f1", progress=False)

    with pytest.raises(UserError, match=r"made in Python \(questions\)"):
        recorded_toml(RunFolder.open(str(evaluation.run_id)))


def test_a_run_with_a_program_and_a_model_made_in_python_has_no_file() -> None:
    program = build("turn-rag", k=3)
    lm = dspy.LM("own/model", engine=OfflineEngine())
    evaluation = mempiler.evaluate(program, benchmark="locomo", test=2, lm=lm, progress=False)
    folder = RunFolder.open(str(evaluation.run_id))

    with pytest.raises(UserError, match=r"made in Python \(models, program\); repeat it there"):
        recorded_toml(folder)
    # The run may be resumed, whatever objects it has.
    assert "python_objects" not in folder.read()["settings"]


def make_bootstrap(metric: Any) -> Any:
    """A user's function that makes a teleprompter."""
    return dspy.LabeledFewShot(k=1)


class OwnGepa(mempiler.optimizers.Gepa):
    """A user's own class of optimizers."""


@pytest.mark.parametrize(
    ("optimizer", "has_python_objects"),
    [
        pytest.param(make_bootstrap, True, id="a function"),
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
def test_an_optimizer_with_plain_settings_can_be_written_into_a_file(
    optimizer: Any, has_python_objects: bool
) -> None:
    """A file can hold the name of an optimizer and its settings, but no object of Python."""
    assert make_compilation(optimizer).has_python_objects is has_python_objects


def test_a_compile_by_an_optimizer_made_in_python_has_no_file() -> None:
    compiled = mempiler.compile(
        "turn-rag",
        optimizer=make_bootstrap,
        benchmark="locomo",
        train=4,
        dev=2,
        test=2,
        force=True,
        progress=False,
    )

    with pytest.raises(UserError, match=r"made in Python \(optimizer\)"):
        recorded_toml(RunFolder(compiled.run))


def test_the_file_of_a_compile_leaves_out_the_answer_model() -> None:
    """`compile` has no option for a second model that answers, so the file must not name one."""
    record = {
        "command": "compile",
        "program": "memory-r2",
        "settings": {},
        "stage": "all",
        "optimizer": "bootstrap",
        **resume_key(run_inputs("memory-env", lm="local:x")),
        "answer_lm": "openai/y",
    }

    toml = recorded_toml(RunFolder.create("compile-x", record))

    reason = "is left out: mempiler compile has no option for it."
    assert f"# models.answer.name {reason}\n" in toml
    assert "name" not in tomllib.loads(toml).get("models", {}).get("answer", {})


def test_the_file_of_a_training_leaves_out_min_n() -> None:
    """A training has no verdict, so it needs no least number of questions for one."""
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


def test_the_file_of_an_evaluation_of_recorded_answers_leaves_out_their_folder(
    cli: Any, tmp_path: Path
) -> None:
    """Answers that were made elsewhere can be scored: the file takes the place of a program.

    A run keeps only the name of that file.
    """
    lines = []
    for question in mempiler.benchmark("locomo").examples:
        lines.append(json.dumps({"id": str(question.id), "answer": "x"}))
    answers = tmp_path / "answers.jsonl"
    answers.write_text("\n".join(lines))
    exit_code, output, error_output = cli(
        "evaluate", str(answers), "--benchmark", "locomo", "--json"
    )
    assert exit_code == 0, error_output

    _, toml, _ = cli("show", json.loads(output)["run_id"], "--config")

    first_line, second_line = toml.splitlines()[:2]
    assert first_line == "# mempiler evaluate answers.jsonl --config FILE"
    assert second_line.startswith("# A run keeps no folder of a file of answers.")


def test_a_list_of_categories_stays_a_setting_of_the_benchmark_in_a_file() -> None:
    """The option `categories` is a text; only a setting of the benchmark may be a list."""
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
def test_a_compile_refuses_an_answer_model_because_it_would_not_ask_it(function: Any) -> None:
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
def test_categories_are_one_or_several(categories: Any, expected: str | None) -> None:
    """The categories of questions may be given as a number, a list or a text; LoCoMo has five."""
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


def test_a_run_to_resume_may_be_a_path(run_at_temperature_0: EvaluatedRun) -> None:
    resumed = mempiler.evaluate(
        "turn-rag",
        benchmark="locomo",
        test=2,
        lm_set={"temperature": 0},
        resume=run_at_temperature_0.folder,
        progress=False,
    )

    assert resumed.score == run_at_temperature_0.score


def test_a_run_to_replay_may_be_a_path(run_at_temperature_0: EvaluatedRun) -> None:
    """A replay takes its answers and its settings from another run, here temperature 0."""
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
    """The run asked its model at temperature 0."""
    with pytest.raises(UserError, match="ran with --lm-set"):
        make_inputs(
            {
                "benchmark": "locomo",
                "lm_set": {"temperature": 1},
                "replay": run_at_temperature_0.folder,
            }
        )
