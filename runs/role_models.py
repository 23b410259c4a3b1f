"""Which model does what in a run, where it is asked, and whether it can be.

Everything is checked before anything is paid for: `check_models` refuses a model that nobody
provides, whose key is not set, or whose server has no such model.
"""

from __future__ import annotations

from collections.abc import Collection
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
    """The option that would name another address, if the address is that of `--api-base`; or "".

    Errors name it.
    """


def role_models(config: RunConfig) -> dict[Role, RoleModel]:
    """Return the name and the address of the model of each role.

    The task LM is asked at `--api-base`. The models of the other roles have an option for the
    address, too; without it, they may share that of the task LM (`with_shared_address`).
    """
    models = config.models
    prompt = with_shared_address(
        config, models.prompt.name, models.prompt.api_base, "--prompt-api-base"
    )
    judge = with_shared_address(
        config, models.judge.name, models.judge.api_base, "--judge-api-base"
    )
    answer = with_shared_address(
        config, models.answer.name, models.answer.api_base, "--answer-api-base"
    )
    return {
        "task": RoleModel(models.task.name, models.task.api_base),
        "prompt": prompt,
        "judge": judge,
        "answer": answer,
    }


def with_shared_address(
    config: RunConfig, name: str | None, own_address: str | None, address_option: str
) -> RoleModel:
    """Return a model beside the task LM, with the address of `--api-base` if it may be asked there.

    It may if the server there is its own: if it is a model on any OpenAI-compatible server, or of
    the same provider as the task LM. Any other model is asked at the address of its own provider.
    Otherwise the key for its provider would be sent to the server of another one.

    Args:
        config: Names the task LM and its address.
        name: The model; None where the role has none of its own.
        own_address: The address that `address_option` names; None if the option is not set.
        address_option: The option that names the address of this role.
    """
    if name is None or runs_here(name):
        # There is no model, or it runs in this process: no server is asked.
        return RoleModel(name, own_address)
    if own_address is not None:
        return RoleModel(name, own_address)

    task = config.models.task
    # If the task LM runs in this process, it needs no address: then `--api-base` can only be meant
    # for the other models.
    is_meant_for_others = runs_here(task.name)
    shares_provider = provider_of(name) in (_COMPATIBLE, provider_of(task.name))
    if task.api_base is not None and (is_meant_for_others or shares_provider):
        # Errors at this address name the option, because the user has not set it.
        return RoleModel(name, task.api_base, address_option)
    return RoleModel(name)


def check_models(inputs: RunInputs, left_out: Collection[Role] = ()) -> None:
    """Refuse a model that could not be asked, whatever its role.

    Args:
        inputs: Name the models.
        left_out: Roles whose models are not checked, because nobody knows yet if they are asked.

    Raises:
        UserError: Nobody provides it, its key is not set, or its provider has no such model.
        EndpointError: Its server cannot be reached, and the run is not a resumed one.
    """
    roles: list[Role] = [*inputs.user_models]
    for role in role_models(inputs.config):
        if role not in inputs.user_models:
            roles.append(role)
    for role in roles:
        if role not in left_out:
            check_role(inputs, role)


def check_role(inputs: RunInputs, role: Role) -> None:
    """Refuse the model of one role if it could not be asked, raising what `check_models` does."""
    is_resumed = inputs.config.execution.resume is not None
    # A role has either a model object that the user made, or a model that is named.
    user_lm = inputs.user_models.get(role)
    if user_lm is not None:
        _check_lm(language_model(user_lm, role=role), is_resumed)
        return
    model = role_models(inputs.config).get(role)
    if model is not None:
        check_model(role, model, is_resumed)


def check_model(role: Role, model: RoleModel, is_resumed: bool) -> None:
    """Refuse the model of a role if it could not be asked.

    A model that runs in this process, and a role without a model, always pass.

    Args:
        role: What the model is used for.
        model: Its name and its address.
        is_resumed: Whether the run is a resumed one, which may not need the server any more.

    Raises:
        UserError: Nobody provides it, its key is not set, or its provider has no such model.
        EndpointError: Its server cannot be reached, and the run is not a resumed one.
    """
    if not model.name or runs_here(model.name):
        return

    try:
        lm = language_model(model.name, api_base=model.address, role=role)
        _check_lm(lm, is_resumed)
    except (UserError, EndpointError) as error:
        # Without this option the model is asked at the address of the task LM, which may be the
        # reason of the error.
        if not model.address_option:
            raise
        advice = f"asked at --api-base; {model.address_option} names another address"
        message = f"{error} ({advice})"
        if isinstance(error, EndpointError):
            raise EndpointError(message) from error
        raise UserError(message) from error


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
    """Return the name of the adapter for a program that is not a saved one.

    If the user named none, it is "auto" for a model at an endpoint, which tries what the endpoint
    can do, and "chat" for any other model.
    """
    if inputs.config.method.adapter:
        return inputs.config.method.adapter

    # A model object of the user's may do anything with a request, so nothing is tried with it
    # unless it is an ordinary chat endpoint.
    user_lm = inputs.user_models.get("task")
    if user_lm is not None and not is_plain(user_lm):
        return "chat"

    task_lm = inputs.config.models.task.name
    if is_offline(task_lm) or is_local(task_lm):
        return "chat"
    return "auto"
