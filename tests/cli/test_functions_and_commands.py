"""Each main command gives the same numbers and record as the function of the same name.

What the command line does with `mempiler compile ... --dev 4`, Python does with
`mempiler.compile(..., dev=4)`. No model is named, so the offline engine answers, and two runs
differ in nothing but names and times.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler.cli import app
from mempiler.runs.folder import RunFolder
from mempiler.runs.options import RunOptions

from ..command_line import RunCommand, json_of
from ..demonstrated_model import save_demonstrated_model

KEYS_OF_ONE_RUN = {
    "run",
    "run_id",
    "program",
    "seconds",
    "search_ms",
    "answering",
    "construction",
    "optimizer",
}
"""Keys of a result that name one run, or say how long it took."""


def without_keys_of_one_run(value: Any) -> Any:
    """Return a result without what differs between two runs of the same thing."""
    if isinstance(value, list):
        return [without_keys_of_one_run(item) for item in value]
    if isinstance(value, dict):
        return {
            key: without_keys_of_one_run(item)
            for key, item in value.items()
            if key not in KEYS_OF_ONE_RUN
        }
    return value


def settings_of(run: str | Path) -> dict[str, Any]:
    """Return the settings of a run, by which it is resumed, from its folder."""
    return RunFolder.open(str(run)).read()["settings"]


def as_json(result: Any) -> Any:
    """Return the result of a function as JSON that was written and read again."""
    return json.loads(json.dumps(result.to_dict()))


@pytest.mark.slow
def test_compile_returns_what_the_command_prints(cli: RunCommand) -> None:
    printed = json_of(
        cli,
        "compile",
        "turn-rag",
        *("--benchmark", "locomo"),
        *("--train", "12"),
        *("--dev", "4"),
        *("--test", "6"),
        *("--optimizer", "labeled"),
        *("--optimizer-set", "max_labeled_demos=3"),
        *("--set", "k=5"),
        "--force",
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

    assert without_keys_of_one_run(as_json(returned)) == without_keys_of_one_run(printed)
    assert settings_of(returned.run) == settings_of(printed["run"])


def test_evaluate_returns_what_the_command_prints(cli: RunCommand) -> None:
    printed = json_of(
        cli,
        "evaluate",
        "turn-rag",
        *("--benchmark", "locomo"),
        *("--test", "6"),
        *("--split", "test"),
        *("--categories", "2,4"),
    )

    returned = mempiler.evaluate(
        "turn-rag", benchmark="locomo", test=6, split="test", categories="2,4", progress=False
    )

    assert without_keys_of_one_run(as_json(returned)) == without_keys_of_one_run(printed)
    assert settings_of(str(returned.run_id)) == settings_of(printed["run_id"])


@pytest.mark.slow
def test_compare_returns_what_the_command_prints(cli: RunCommand) -> None:
    """The method recalls one turn (`k` = 1) in the first run, and nine in the second one."""
    first = mempiler.evaluate("turn-rag", benchmark="locomo", test=6, set={"k": 1}, progress=False)
    second = mempiler.evaluate("turn-rag", benchmark="locomo", test=6, set={"k": 9}, progress=False)

    printed = json_of(cli, "compare", str(first.run_id), str(second.run_id))
    returned = as_json(mempiler.compare(first, second))

    assert returned["runs"] == printed["runs"]
    assert returned["comparisons"] == printed["comparisons"]


@pytest.fixture
def tiny_model(tmp_path: Path) -> str:
    """The name of a tiny model that can be trained; "local:tiny" would take a minute to make."""
    pytest.importorskip("torch")
    return f"local:{save_demonstrated_model(tmp_path / 'start', steps=2)}"


@pytest.mark.slow
def test_train_returns_what_the_command_prints(cli: RunCommand, tiny_model: str) -> None:
    printed = json_of(
        cli,
        "train",
        "memory-r2",
        *("--lm", tiny_model),
        *("--adapter", "compact"),
        *("--benchmark", "memory-env"),
        *("--benchmark-set", "users=10"),
        *("--benchmark-set", "sessions=2"),
        *("--test", "2"),
        *("--dev", "1"),
        *("--train-set", "steps=1"),
        *("--train-set", "tokens=null"),
        *("--train-set", "horizons=[2]"),
        *("--train-set", "num_rollouts=2"),
        *("--train-set", "local_n=2"),
        *("--train-set", "answer_tokens=24"),
    )
    returned = mempiler.train(
        "memory-r2",
        lm=tiny_model,
        adapter="compact",
        benchmark="memory-env",
        benchmark_set={"users": 10, "sessions": 2},
        test=2,
        dev=1,
        train_set={
            "steps": 1,
            "tokens": None,
            "horizons": [2],
            "num_rollouts": 2,
            "local_n": 2,
            "answer_tokens": 24,
        },
        progress=False,
    )

    assert settings_of(returned.run) == settings_of(printed["run"])
    assert as_json(returned)["before"]["score"] == printed["before"]["score"]
    assert as_json(returned)["after"]["score"] == printed["after"]["score"]
    assert returned.training["tokens"] == printed["training"]["tokens"] > 0


@pytest.mark.parametrize("name", ["compile", "evaluate", "choose", "improve", "train"])
def test_every_option_of_a_command_is_an_argument_of_its_function(name: str) -> None:
    """Options that choose only what the terminal shows have no argument in Python."""
    command = app.get_command(None, name)  # type: ignore[arg-type]
    options: set[str] = set()
    for parameter in command.params:
        long_name = max(parameter.opts, key=len)
        options.add(long_name.lstrip("-").replace("-", "_"))
    options_of_the_terminal = {"json", "config", "plan", "check", "program"}

    arguments = set(inspect.signature(getattr(mempiler, name)).parameters)
    arguments.update(RunOptions.__annotations__)

    assert options >= {"lm", "max_usd"}
    assert options - options_of_the_terminal <= arguments
