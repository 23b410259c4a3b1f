"""Configurations for tests, by the names of options: `run_inputs("locomo", test=4)`."""

import os
from typing import Any

from mempiler.runs.config import RunConfig
from mempiler.runs.inputs import RunInputs


def run_config(benchmark: str, **options: Any) -> RunConfig:
    """Return the configuration of a run, which is tracked if the tests are; see `conftest`."""
    tracking = os.environ["MEMPILER_TRACKING"]
    return RunConfig.from_options(**{"benchmark": benchmark, "tracking": tracking, **options})


def run_inputs(benchmark: str, **options: Any) -> RunInputs:
    """Return what a run is started with."""
    return RunInputs(run_config(benchmark, **options))


def with_options(inputs: RunInputs, **options: Any) -> RunInputs:
    """Return what a run is started with, with other options."""
    return RunInputs(
        inputs.config.with_options(**options), inputs.user_benchmark, inputs.user_models
    )
