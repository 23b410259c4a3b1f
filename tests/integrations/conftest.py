"""Environments of other people's packages, made from nothing, or a skip with the reason."""

import os

import pytest
from mempiler.errors import EndpointError
from mempiler.systems.environment import Environment


def installed(environment: Environment, own: bool = False) -> Environment:
    """An environment, installed unless it is that of the tests; skips the test if it cannot be."""
    if not os.environ.get("MEMPILER_SYSTEMS"):
        pytest.skip("environments of other people's packages are made by `make integrations`")
    try:
        if not own:
            environment.install()
    except EndpointError as error:
        pytest.skip(str(error))
    return environment
