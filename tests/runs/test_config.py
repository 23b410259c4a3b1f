"""The configuration of a run: its kinds of values, its file, and what a resumed run must have in common."""

import json
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

from ..run_inputs import run_config, run_inputs

CHANGED: dict[str, Any] = {
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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"benchmark_set": {"metric": "f1"}},
        *({name: CHANGED[name]} for name in CHANGED),
        CHANGED,
    ],
)
def test_a_file_holds_what_was_written(options: dict[str, Any]) -> None:
    config = run_config("locomo", **options)
    assert parse_config(config_toml(config)) == config


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
def test_a_setting_of_a_training_beside_the_one_that_contains_it_is_refused(
    group: str, name: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(UserError) as error:
        TrainingConfig().changed(settings)
    message = f"settings of the training: {group} contains {name}; give only one of them"
    assert str(error.value) == message


def test_a_setting_of_a_training_that_contains_others_is_replaced_as_a_whole() -> None:
    config = TrainingConfig().changed({"curriculum": {"horizons": (1, 2)}, "beta": 0.5})
    assert config.settings.curriculum == Curriculum((1, 2))
    assert config.train_kwargs == {"beta": 0.5}


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


def test_the_file_of_an_evaluation_gives_an_identical_run(
    stub: Any, mempiler_cli: Any, cli: Any, tmp_path: Path
) -> None:
    server = stub()
    words = [
        "--split",
        "test",
        "--set",
        "k=3",
        "--lm-set",
        "top_k=5",
        "--categories",
        "1,2,4",
        "--max-calls",
        "50",
    ]
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
    assert json.loads(out)["score"] == first.found["score"]
    assert len(server.texts) == asked

    code, out, err = cli(*repeat)
    assert code == 0, err
    new = RunFolder.open(json.loads(out)["run_id"]).read()
    assert new["settings"] == old["settings"]
    assert new["parameters"]["limit.max_calls"] == old["parameters"]["limit.max_calls"] == 50


def test_the_file_of_a_compile_names_its_optimizer(cli: Any, tmp_path: Path) -> None:
    sizes = ["--benchmark", "locomo", "--train", "8", "--dev", "2", "--test", "2", "--force"]
    optimizer = [
        "--optimizer",
        "labeled",
        "--optimizer-set",
        "max_labeled_demos=2",
        "--stage",
        "read",
    ]
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


def test_objects_made_in_python_cannot_stand_in_a_file() -> None:
    example = mempiler.benchmark("locomo").test[:2]
    result = mempiler.evaluate("turn-rag", example, metric="f1", progress=False)
    with pytest.raises(
        UserError, match="rests on objects that were made in Python \\(questions\\)"
    ):
        recorded_toml(RunFolder.open(str(result.run_id)))


def test_programs_and_models_that_are_objects_have_no_file() -> None:
    program = build("turn-rag", k=3)
    lm = dspy.LM("own/model", engine=OfflineEngine())
    result = mempiler.evaluate(program, benchmark="locomo", test=2, lm=lm, progress=False)
    folder = RunFolder.open(str(result.run_id))
    assert folder.read()["settings"].keys().isdisjoint({"python_objects"})
    with pytest.raises(UserError, match="made in Python \\(models, program\\); repeat it there"):
        recorded_toml(folder)


def test_an_optimizer_that_is_a_function_or_holds_objects_has_no_file() -> None:
    def bootstrap(metric: Any) -> Any:
        return dspy.LabeledFewShot(k=1)

    class OwnGepa(mempiler.optimizers.Gepa):
        pass

    holds_object = mempiler.optimizers.Gepa(extra={"logger": object()})
    plain = mempiler.optimizers.Gepa(max_metric_calls=5, extra={"use_merge": (1, {"a": 2})})
    assert make_compilation(bootstrap).has_python_objects
    assert make_compilation(holds_object).has_python_objects
    assert make_compilation(OwnGepa(max_metric_calls=5)).has_python_objects
    assert not make_compilation(plain).has_python_objects

    sizes: Any = {"benchmark": "locomo", "train": 4, "dev": 2, "test": 2, "progress": False}
    result = mempiler.compile("turn-rag", optimizer=bootstrap, force=True, **sizes)
    with pytest.raises(UserError, match="made in Python \\(optimizer\\)"):
        recorded_toml(RunFolder(result.run))


@pytest.mark.parametrize(
    ("command", "changes", "place"),
    [
        ("compile", {"answer_lm": "openai/y"}, "models.answer.name"),
        ("train", {"min_n": 5}, "execution.min_n"),
    ],
)
def test_the_file_of_a_run_leaves_out_what_its_command_has_no_option_for(
    command: str, changes: dict[str, Any], place: str
) -> None:
    from pydantic_core import to_jsonable_python

    record: dict[str, Any] = {"command": command, "program": "memory-r2"}
    record |= (
        to_jsonable_python(TrainingConfig())
        if command == "train"
        else {"settings": {}, "stage": "all"}
    )
    record |= {
        "optimizer": "bootstrap",
        **resume_key(run_inputs("memory-env", lm="local:x")),
        **changes,
    }
    text = recorded_toml(RunFolder.create(f"{command}-x", record))
    assert f"# {place} is left out: mempiler {command} has no option for it.\n" in text
    assert place.rpartition(".")[2] not in parse_sections(text).get(place.rpartition(".")[0], {})


def parse_sections(text: str) -> dict[str, Any]:
    """The tables of a file, by their whole names."""
    import tomllib

    tables = tomllib.loads(text)
    return {
        **tables,
        **{f"models.{name}": table for name, table in tables.get("models", {}).items()},
    }


def test_the_file_of_answers_says_that_their_folder_is_left_out(cli: Any, tmp_path: Path) -> None:
    questions = mempiler.benchmark("locomo").examples
    file = tmp_path / "answers.jsonl"
    file.write_text(
        "".join(json.dumps({"id": str(each.id), "answer": "x"}) + "\n" for each in questions)
    )
    code, out, err = cli("evaluate", str(file), "--benchmark", "locomo", "--json")
    assert code == 0, err
    text = cli("show", json.loads(out)["run_id"], "--config")[1]
    assert text.startswith(
        "# mempiler evaluate answers.jsonl --config FILE\n# A run keeps no folder of a file of answers."
    )


def test_a_list_of_categories_stays_a_setting_of_the_benchmark() -> None:
    record = {
        "command": "evaluate",
        "program": "turn-rag",
        "part": "all",
        **resume_key(run_inputs("locomo")),
    }
    folder = RunFolder.create("evaluate-x", {**record, "options": {"categories": [1, 2]}})
    assert "[data.settings]\ncategories = [1, 2]\n" in recorded_toml(folder)


def test_a_compile_refuses_a_model_that_it_would_not_ask() -> None:
    for function in (mempiler.compile, mempiler.plan):
        with pytest.raises(UserError, match="answer_lm: compile does not take it; leave it out"):
            function("turn-rag", benchmark="locomo", answer_lm="offline", progress=False)


@pytest.mark.parametrize(
    ("categories", "expected"),
    [(2, "2"), (0, "0"), ([2, 4], "2,4"), ("2,4", "2,4"), ((), None), ("", None), (None, None)],
)
def test_categories_are_one_or_several(categories: Any, expected: str | None) -> None:
    assert (
        make_inputs({"benchmark": "locomo", "categories": categories}).config.data.categories
        == expected
    )
    with pytest.raises(UserError, match=r"categories = 2.5: give one, or a list"):
        make_inputs({"benchmark": "locomo", "categories": 2.5})


def test_a_run_to_resume_or_replay_may_be_a_path() -> None:
    first = mempiler.evaluate(
        "turn-rag", benchmark="locomo", test=2, lm_set={"temperature": 0}, progress=False
    )
    run = RunFolder.open(str(first.run_id)).path
    resumed = mempiler.evaluate(
        "turn-rag",
        benchmark="locomo",
        test=2,
        lm_set={"temperature": 0},
        resume=run,
        progress=False,
    )
    replayed = mempiler.evaluate(
        "turn-rag", benchmark="locomo", test=2, lm_set={}, replay=run, progress=False
    )
    assert first.score == resumed.score == replayed.score
    with pytest.raises(UserError, match="ran with --lm-set"):
        make_inputs({"benchmark": "locomo", "lm_set": {"temperature": 1}, "replay": run})
