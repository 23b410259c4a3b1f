"""Which provider a model belongs to, and the client of `dspy.lm15` that asks this provider."""

from __future__ import annotations

from typing import Any, NamedTuple

from dspy.lm15 import (
    AsyncLMRouter,
    RouterConfig,
    UnknownModelError,
    UnsupportedFeatureError,
    registered_providers,
)

from .address import address_in_environment
from .reported_usage import UsageFilter

OPENAI_CHAT = "openai-chat"
"""What `dspy.lm15` calls a provider that speaks OpenAI's chat."""


class Route(NamedTuple):
    """Where the calls of a model go."""

    provider: str
    """As `dspy.lm15` calls it."""
    model: str
    """As the provider calls it."""


def find_route(name: str, address: str | None = None) -> Route | None:
    """Return the provider that a client of `dspy.lm15` asks for a model, and its name there.

    None if `dspy.lm15` cannot ask for the model, so that litellm has to.

    Args:
        name: The name of the model, as `dspy.LM` takes it: PROVIDER/MODEL, or MODEL alone.
        address: The address of the endpoint, if the user sets one.
    """
    provider_prefix, slash, model = name.partition("/")
    if provider_prefix != "openai" and address_in_environment(provider_prefix):
        # `dspy.lm15` does not read a variable such as MISTRAL_API_BASE; litellm does.
        return None

    # With "any" in the place of the model: it does not matter for the provider, and its real name
    # may hold a colon, at which the router would split it.
    routed_name = f"{provider_prefix}/any" if slash else name
    try:
        # The name alone decides, not the variables of the environment.
        resolution = _router(env={}).resolve_openai_chat(routed_name)
    except (UnknownModelError, UnsupportedFeatureError):
        # `dspy.lm15` does not know the provider, or has no chat client for it.
        return None

    if resolution.provider.startswith("azure") and address:
        # `dspy.lm15` takes an address of Azure for that of a resource, and adds its own path to it.
        return None
    return Route(resolution.provider, model if slash else resolution.model)


def provider_client(
    route: Route, transport: UsageFilter, address: str | None, key: str | None
) -> Any:
    """Return the client of `dspy.lm15` that asks the provider of a route.

    Args:
        route: The route of a model.
        transport: What sends the client's requests.
        address: Up to and including its /v1; None takes the provider's own.
        key: None takes the one in the provider's variable.

    Raises:
        LM15Error: The provider cannot be asked, e.g. because there is no key.
    """
    router = _router(
        transport=transport,
        base_urls={route.provider: address} if address else None,
        api_keys={route.provider: key} if key else None,
    )
    return router.lm(f"{route.provider}:{route.model}")


def _router(**settings: Any) -> AsyncLMRouter:
    """Return a router that knows the providers of `dspy.lm15`, and those that users registered."""
    definitions = tuple(provider.definition for provider in registered_providers())
    return AsyncLMRouter(RouterConfig(providers=definitions, **settings))
