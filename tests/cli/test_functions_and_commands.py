"""Each main command gives the same numbers and leaves the same record as the function of the same name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler.runs.folder import RunFolder

Cli = Callable[..., tuple[int, str, str]]

OF_ONE_RUN = {"run", "run_id", "program", "seconds", "search_ms", "answering", "construction", "optimizer"}
"""Keys of a result that name one run, or say how long it took."""


def without_run(value: Any) -> Any:
    """A result without what differs between two runs of the same thing."""
    if isinstance(value, dict):
        return {key: without_run(each) for key, each in value.items() if key not in OF_ONE_RUN}
    if isinstance(value, list):
        return [without_run(each) for each in value]
    return value


def settings_of(run: str | Path) -> dict[str, Any]:
    """The settings that decide the result of a run, as its folder keeps them."""
    return RunFolder.open(str(run)).read()["settings"]


@pytest.fixture
def run_command(cli: Cli) -> Callable[..., dict[str, Any]]:
    """Runs a command, and returns the JSON object that it prints."""

    def run(*words: str) -> dict[str, Any]:
        code, out, err = cli(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


def plain(result: Any) -> Any:
    """What a function returned, as JSON that was written and read again."""
    return json.loads(json.dumps(result.to_dict()))


def test_compile_returns_what_the_command_prints(run_command: Callable[..., dict[str, Any]]) -> None:
    printed = run_command(
        *("compile", "turn-rag", "--benchmark", "locomo", "--train", "12", "--dev", "4", "--test", "6"),
        *("--optimizer", "labeled", "--optimizer-set", "max_labeled_demos=3", "--set", "k=5", "--force"),
    )
    returned = mempiler.compile(
        "turn-rag",
        benchmark="locomo",
        train=12,
        dev=4,
        test=6,
        optimizer=mempiler.optimizers.Labeled(max_labeled_demos=3),
        set={"k": 5},
        force=True,
        progress=False,
    )
    assert without_run(plain(returned)) == without_run(printed)
    assert settings_of(returned.run) == settings_of(printed["run"])


def test_evaluate_returns_what_the_command_prints(run_command: Callable[..., dict[str, Any]]) -> None:
    printed = run_command(
        *("evaluate", "turn-rag", "--benchmark", "locomo", "--test", "6", "--split", "test", "--categories", "2,4")
    )
    returned = mempiler.evaluate("turn-rag", benchmark="locomo", test=6, split="test", categories="2,4", progress=False)
    assert without_run(plain(returned)) == without_run(printed)
    assert settings_of(str(returned.run_id)) == settings_of(printed["run_id"])


def test_compare_returns_what_the_command_prints(run_command: Callable[..., dict[str, Any]]) -> None:
    first = mempiler.evaluate("turn-rag", benchmark="locomo", test=6, set={"k": 1}, progress=False)
    second = mempiler.evaluate("turn-rag", benchmark="locomo", test=6, set={"k": 9}, progress=False)
    printed = run_command("compare", str(first.run_id), str(second.run_id))
    returned = plain(mempiler.compare(first, second))
    assert returned["runs"] == printed["runs"]
    assert returned["comparisons"] == printed["comparisons"]


@pytest.mark.slow
def test_train_returns_what_the_command_prints(run_command: Callable[..., dict[str, Any]]) -> None:
    pytest.importorskip("torch")
    benchmark = ("--benchmark", "memory-env", "--benchmark-set", "users=10", "--benchmark-set", "sessions=2")
    printed = run_command(
        *("train", "memory-r2", "--lm", "local:tiny", *benchmark, "--test", "4", "--dev", "2"),
        *("--train-set", "steps=1", "--train-set", "tokens=null", "--train-set", "horizons=[2]"),
    )
    returned = mempiler.train(
        "memory-r2",
        lm="local:tiny",
        benchmark="memory-env",
        benchmark_set={"users": 10, "sessions": 2},
        test=4,
        dev=2,
        train_set={"steps": 1, "tokens": None, "horizons": [2]},
        progress=False,
    )
    assert settings_of(returned.run) == settings_of(printed["run"])
    assert plain(returned)["after"]["score"] == printed["after"]["score"]
    assert plain(returned)["before"]["score"] == printed["before"]["score"]
    assert returned.training["tokens"] == printed["training"]["tokens"]


@pytest.mark.parametrize("name", ["compile", "evaluate", "train"])
def test_every_option_of_a_command_is_an_argument_of_its_function(name: str) -> None:
    import inspect

    from mempiler.cli import app
    from mempiler.runs.options import RunOptions

    command = app.get_command(None, name)  # type: ignore[arg-type]
    options = {max(option.opts, key=len).lstrip("-").replace("-", "_") for option in command.params}
    of_the_terminal = {"json", "config", "plan", "check", "program"}
    function = inspect.signature(getattr(mempiler, name)).parameters
    assert options - of_the_terminal <= {*function, *RunOptions.__annotations__}
