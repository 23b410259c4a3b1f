"""How a language model is asked: where, for how long, with which settings.

Example:
    config = ModelConfig(api_base="http://localhost:8000/v1", timeout=30)
    lm = language_model("openai/qwen3", config)
    lm = language_model("openai/qwen3", config, temperature=0.2)   # with a setting of every request
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .endpoint import DEADLINE, RETRIES, TIMEOUT
from .prices import TokenPrices


@dataclass(frozen=True)
class ModelConfig:
    """How `language_model` asks a model.

    Models that run in this process have no address, key, timeout, retries or deadline. A `gguf:`
    model is asked through a server of its own: it sets address and key itself, the others hold.
    """

    api_base: str | None = None
    """Address of an OpenAI-compatible server; None takes the provider's own."""
    api_key: str | None = field(default=None, repr=False)
    """Key for the server; None takes the one in the provider's environment variable."""
    timeout: float = TIMEOUT
    """Seconds without a byte from the server after which an attempt has failed; at least 600 for
    `gguf:` models, which read a long prompt for minutes."""
    retries: int = RETRIES
    """Most attempts after the first, where a call could not reach its model."""
    deadline: float = DEADLINE
    """Seconds for a call, its retries and waits included."""
    cache: bool | None = None
    """Whether DSPy's LM cache is used. None means yes, except for `offline`, which is faster
    than the cache. Local models are never cached, because their weights may change."""
    uses_shared_cache: bool = True
    """Whether DSPy's LM cache, which all runs share, may hold the answers. If not, equal calls of a
    run share one answer all the same (see `cache`), but only the run keeps it."""
    repeat: int = 0
    """Which repetition of a run it is. From 1 on, a model with a temperature samples answers anew
    instead of taking those of an earlier repetition from a cache."""
    slots: int = 1
    """Prompts that a `gguf:` model works on at the same time."""
    prices: TokenPrices | None = None
    """US dollars per token, for answers that come without a cost."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of every request: temperature (0 by default for models in this process), max_tokens,
    top_p, seed, reasoning_effort, or any other field of the body that the endpoint takes, e.g.
    top_k or chat_template_kwargs. None means: not set."""

    def with_options(self, options: Mapping[str, Any]) -> ModelConfig:
        """Return a config with some values changed.

        Args:
            options: By the name of a field, its new value; by any other name, a setting of every
                request.
        """
        names = {config_field.name for config_field in fields(self)}
        changed_fields = {name: value for name, value in options.items() if name in names}
        config = replace(self, **changed_fields)

        new_settings = {name: value for name, value in options.items() if name not in names}
        return replace(config, settings={**config.settings, **new_settings})
