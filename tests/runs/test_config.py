"""The configuration of a run: its kinds of values, its file, and what a resumed run must have in common."""

import json
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import UserError
from mempiler.optimizers.logo_grpo.training_config import TrainingConfig
from mempiler.runs.config import CONFIG_FIELDS, DataConfig, RunConfig
from mempiler.runs.config_file import config_toml, parse_config
from mempiler.runs.folder import RunFolder
from mempiler.runs.options import RunOptions
from mempiler.runs.recorded_config import recorded_toml
from mempiler.runs.repeating import BENCHMARK_OPTIONS, FREE_ON_RESUME, RECORDED_NAMES, resume_key

from ..run_inputs import run_config, run_inputs

CHANGED: dict[str, Any] = {
    "data": 'a "file".json',
    "metric": "f1",
    "categories": "2,4",
    "benchmark_set": {"size": "1M", "a name": [1, 2.5, True], "nested": {"x": "é\n\x7f"}},
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


@pytest.mark.parametrize("options", [{}, {"benchmark_set": {"metric": "f1"}}, *({name: CHANGED[name]} for name in CHANGED), CHANGED])
def test_a_file_holds_what_was_written(options: dict[str, Any]) -> None:
    config = run_config("locomo", **options)
    assert parse_config(config_toml(config)) == config


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("seed", "a", "seed = 'a': input should be a valid integer"),
        ("threads", True, "threads = True: input should be a valid integer"),
        ("threads", 0, "threads = 0: input should be greater than or equal to 1"),
        ("max_failure_rate", 1.5, "max_failure_rate = 1.5: input should be less than or equal to 1"),
        ("timeout", float("nan"), "timeout = nan: input should be "),
        ("data", 3, "data = 3: input should be a valid string"),
        ("set", 3, "set = 3: input should be a valid dictionary"),
        ("workers", 1.5, "workers = 1.5: input should be a valid integer or a valid string"),
        ("workers", "many", "workers = 'many': give a number of processes, or HOST:PORT"),
        ("traces", "some", "traces = 'some': input should be a valid integer"),
        ("allow_code", 1, "allow_code = 1: input should be a valid boolean"),
        ("max_usd", True, "max_usd = True: give a finite number"),
        ("sead", 3, "unknown option 'sead'; did you mean 'seed'?"),
    ],
)
def test_a_wrong_value_names_option_value_and_what_is_expected(option: str, value: Any, expected: str) -> None:
    with pytest.raises(UserError) as error:
        run_inputs("locomo", **{option: value})
    assert str(error.value).startswith(expected)
    assert "\n" not in str(error.value)


def test_groups_refuse_what_they_do_not_have() -> None:
    unknown: Any = {"sead": 3}
    with pytest.raises(UserError, match="unknown setting 'sead'; did you mean 'seed'"):
        DataConfig(benchmark="locomo", **unknown)
    without_benchmark: Any = {}
    with pytest.raises(UserError, match="benchmark is missing"):
        RunConfig.from_options(**without_benchmark)


def test_python_functions_have_the_options_of_the_configuration() -> None:
    of_python = {"limits", "progress"}
    of_configurations = {"metric", "repeat"}
    assert RunOptions.__annotations__.keys() - of_python == CONFIG_FIELDS.keys() - of_configurations


def test_a_resumed_run_has_every_option_in_common_that_is_not_free() -> None:
    key = resume_key(run_inputs("locomo"))
    decisive = CONFIG_FIELDS.keys() - FREE_ON_RESUME - set(BENCHMARK_OPTIONS)
    assert key.keys() == {RECORDED_NAMES.get(name, name) for name in decisive} | {"options"}
    assert CONFIG_FIELDS.keys() >= FREE_ON_RESUME


def test_the_file_of_an_evaluation_gives_an_identical_run(stub: Any, mempiler_cli: Any, cli: Any, tmp_path: Path) -> None:
    server = stub()
    words = ["--split", "test", "--set", "k=3", "--lm-set", "top_k=5", "--categories", "1,2,4", "--max-calls", "50"]
    first = mempiler_cli(server, "evaluate", "turn-rag", *words, test=4)
    assert first.code == 0, first.err
    asked, old = len(server.texts), RunFolder.open(first.found["run_id"]).read()

    code, text, err = cli("show", first.found["run_id"], "--config")
    assert code == 0, err
    assert "127.0.0.1" not in text
    assert text.startswith("# mempiler evaluate turn-rag --config FILE\n")
    file = tmp_path / "run.toml"
    file.write_text(text)
    repeat = ["evaluate", "turn-rag", "--config", str(file), "--api-base", server.url, "--json"]
    code, out, err = cli(*repeat, "--resume", first.found["run_id"])
    assert code == 0, err
    assert (json.loads(out)["score"], len(server.texts)) == (first.found["score"], asked)

    code, out, err = cli(*repeat)
    assert code == 0, err
    new = RunFolder.open(json.loads(out)["run_id"]).read()
    assert new["settings"] == old["settings"]
    assert new["parameters"]["limit.max_calls"] == old["parameters"]["limit.max_calls"] == 50


def test_the_file_of_a_compile_names_its_optimizer(cli: Any, tmp_path: Path) -> None:
    sizes = ["--benchmark", "locomo", "--train", "8", "--dev", "2", "--test", "2", "--force"]
    optimizer = ["--optimizer", "labeled", "--optimizer-set", "max_labeled_demos=2", "--stage", "read"]
    code, out, err = cli("compile", "turn-rag", *sizes, *optimizer, "--json")
    assert code == 0, err
    first = json.loads(out)["run"]
    file = tmp_path / "run.toml"
    file.write_text(cli("show", first, "--config")[1])
    code, out, err = cli("compile", "turn-rag", "--config", str(file), "--force", "--json")
    assert code == 0, err
    second = json.loads(out)["run"]
    assert RunFolder.open(second).read()["settings"] == RunFolder.open(first).read()["settings"]


@pytest.mark.parametrize(
    ("lm", "settings"),
    [
        ("local:tiny", {}),
        ("local:x", {"steps": 3, "tokens": None, "horizons": [2], "lora": 16, "compression": 0.2, "trainer": "trl"}),
        ("local:x", {"answer_lm": "openai/y", "beta": 0.5, "trainer": "trl", "trl": {"use_vllm": True, "fsdp": True}}),
    ],
)
def test_the_file_of_a_training_has_its_settings(lm: str, settings: dict[str, Any]) -> None:
    from pydantic_core import to_jsonable_python

    training = TrainingConfig.for_model(lm).changed({"objective": "grpo-session", **settings})
    key = resume_key(run_inputs("memory-env", lm=lm))
    record = {"command": "train", "program": "memory-r2", **key, **to_jsonable_python(training)}
    folder = RunFolder.create("train-x", record)
    text = recorded_toml(folder)
    written = parse_training(text)
    assert TrainingConfig.for_model(lm).changed(written) == training


def parse_training(text: str) -> dict[str, Any]:
    """The settings of `[training]` in a file, as `--train-set` takes them."""
    import tomllib

    from mempiler.runs.setting_pairs import parse_settings

    section = tomllib.loads(text)["training"]
    settings = section.get("settings", {})
    if isinstance(settings, list):
        settings = parse_settings(settings)
    return {"objective": section["optimizer"], **settings}


def test_what_was_made_in_python_has_no_file() -> None:
    example = mempiler.benchmark("locomo").test[:2]
    result = mempiler.evaluate("turn-rag", example, metric="f1", progress=False)
    with pytest.raises(UserError, match="rests on examples that were made in Python"):
        recorded_toml(RunFolder.open(str(result.run_id)))
