"""Which model does what in a run, where it is asked, and whether it can be.

Everything is checked before anything is paid for: `check_models` refuses a model that nobody
provides, whose key is not set, or whose server has no such model.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.lm import language_model
from ..engines.metered_lm import MeteredLM
from ..engines.model_checks import check_endpoint, check_key
from ..engines.model_names import is_local, is_offline, provider_of, runs_here
from ..engines.usage import Role
from ..engines.user_lm import is_plain
from ..errors import EndpointError, UserError
from .config import RunConfig
from .inputs import RunInputs

_COMPATIBLE = "openai"
"""The provider that names of models on any OpenAI-compatible server begin with."""


@dataclass(frozen=True)
class RoleModel:
    """The model of a role of a run, and where it is asked."""

    name: str | None
    """None where the role has no model of its own."""
    address: str | None = None
    """Address of its server; None takes the provider's own."""
    address_option: str = ""
    """The option that would name another address, for errors; "" unless it has `--api-base`'s."""


def role_models(config: RunConfig) -> dict[Role, RoleModel]:
    """Return the model of each role."""
    models = config.models
    return {
        "task": RoleModel(models.task.name, models.task.api_base),
        "prompt": role_model(
            config, models.prompt.name, models.prompt.api_base, "--prompt-api-base"
        ),
        "judge": role_model(config, models.judge.name, models.judge.api_base, "--judge-api-base"),
        "answer": role_model(
            config, models.answer.name, models.answer.api_base, "--answer-api-base"
        ),
    }


def role_model(
    config: RunConfig, name: str | None, own_address: str | None, address_option: str
) -> RoleModel:
    """Return a model beside the task LM with its address.

    `--api-base` is the address of an OpenAI-compatible server, or of the provider of the task LM.
    A model of any other provider is asked at its provider's: the key of one must not be sent to
    another.

    Args:
        config: Names the task LM and its address.
        name: The model; None where the role has none of its own.
        own_address: The address that `address_option` names, if any.
        address_option: The option that names the address of this role.
    """
    if name is None or runs_here(name):
        # There is no model, or it runs in this process: no server is asked.
        return RoleModel(name, own_address)
    task = config.models.task
    if own_address is not None or task.api_base is None:
        # The role has an address of its own, or there is none to share.
        return RoleModel(name, own_address)

    # A task LM in this process is not asked at `--api-base`, so the address is for the others.
    shares_provider = provider_of(name) in (_COMPATIBLE, provider_of(task.name))
    if shares_provider or runs_here(task.name):
        return RoleModel(name, task.api_base, address_option)
    return RoleModel(name)


def check_models(inputs: RunInputs) -> None:
    """Refuse a model that could not be asked, whatever its role.

    Raises:
        UserError: Nobody provides it, its key is not set, or its provider has no such model.
        EndpointError: Its server cannot be reached. A resumed run goes on: its store may hold all
            that it needs.
    """
    is_resumed = inputs.config.execution.resume is not None
    for role, lm in inputs.user_models.items():
        _check_lm(language_model(lm, role=role), is_resumed)
    for role, model in role_models(inputs.config).items():
        if role not in inputs.user_models:
            check_model(role, model, is_resumed)


def check_model(role: Role, model: RoleModel, is_resumed: bool) -> None:
    """Refuse the model of one role, if it could not be asked, as `check_models` does."""
    if not model.name or runs_here(model.name):
        return
    try:
        lm = language_model(model.name, api_base=model.address, role=role)
        _check_lm(lm, is_resumed)
    except (UserError, EndpointError) as error:
        if not model.address_option:
            raise
        advice = f"asked at --api-base; {model.address_option} names another address"
        kind = EndpointError if isinstance(error, EndpointError) else UserError
        raise kind(f"{error} ({advice})") from error


def _check_lm(lm: MeteredLM, is_resumed: bool) -> None:
    """Refuse a model without a key or an endpoint, or one that its endpoint does not have."""
    check_key(lm)
    try:
        check_endpoint(lm)
    except EndpointError:
        # The store of a resumed run may hold all that it still needs.
        if not is_resumed:
            raise


def default_adapter(inputs: RunInputs) -> str:
    """Return the adapter of a program that is not a saved one.

    If the user named none, it is "auto" for a model at an endpoint, which tries what the endpoint
    can do, and "chat" for any other model.
    """
    adapter = inputs.config.method.adapter
    if adapter:
        return adapter

    user_lm = inputs.user_models.get("task")
    # The user's model object may be no ordinary chat endpoint. It is not looked at if the adapter
    # was set to "", which is not None: then the name of the model alone decides.
    if adapter is None and user_lm is not None and not is_plain(user_lm):
        return "chat"
    task_lm = inputs.config.models.task.name
    if is_offline(task_lm) or is_local(task_lm):
        return "chat"
    return "auto"
