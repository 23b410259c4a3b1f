"""What the names of language models say about them.

| name | model |
|---|---|
| `offline` | rules, no language model: for tests and demonstrations |
| `gguf:NAME` | a GGUF file by its path, or known weights; llama.cpp runs it in this process |
| `local:NAME` | a folder or hub id; torch runs it in this process, and it can be trained |
| any other | what `dspy.LM` takes, e.g. `openai/gpt-4.1-mini` |
"""

from __future__ import annotations

OFFLINE = "offline"
GGUF = "gguf:"
"""What the name of a model begins with that llama.cpp runs in this process."""
LOCAL = "local:"
"""What the name of a model begins with that torch runs in this process."""


def is_offline(name: str) -> bool:
    """Tell whether a name means the offline engine, whose scores say nothing about models."""
    return name == OFFLINE or name.startswith("offline/")


def display_name(name: str) -> str:
    """Return what tables call a model: the offline engine by the name that `--lm` takes."""
    return OFFLINE if is_offline(name) else name


def is_local(name: str) -> bool:
    """Tell whether a name means a model that torch runs in this process."""
    return name.startswith((LOCAL, "local/"))


def runs_here(name: str) -> bool:
    """Tell whether a model needs no server elsewhere: offline, local, or one of llama.cpp's."""
    return is_offline(name) or is_local(name) or name.startswith(GGUF)


def provider_of(name: str) -> str:
    """Return the provider that a name begins with, e.g. "openai"; "" where it names none."""
    provider, slash, _ = name.partition("/")
    return provider if slash else ""
