"""Reading a model and its tokenizer from a folder or the hub."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import MissingDependencyError, UserError
from ...text import one_line


def check_installed() -> None:
    """Raises a MissingDependencyError that names what is missing."""
    for package in ("torch", "transformers", "peft"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError(package, "local")


_DTYPES = ("float32", "bfloat16")
_NO_CODE: dict[str, Any] = {"trust_remote_code": False}
"""Without it transformers asks on a terminal whether to run the code that came with a model."""


def load(
    name: str, device: str | None, lora: Mapping[str, Any] | None, seed: int, dtype: str | None
) -> tuple[Any, Any]:
    """Loads a causal language model, a peft model where it has an adapter, and its tokenizer; see `LocalModel.load`."""
    if dtype is not None and dtype not in _DTYPES:
        raise UserError(f"dtype {dtype!r} is unknown; choose one of: {', '.join(_DTYPES)}")
    check_installed()
    import torch

    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with quiet():
            usual = "float32" if place.type == "cpu" else "bfloat16"
            model, tokenizer = _read(name, getattr(torch, dtype or usual))
        model.to(place)
    except (OSError, ValueError, RuntimeError) as error:
        reason = one_line(error, 200)
        if Path(name).is_dir():
            raise UserError(f"{name}: cannot be loaded as a language model: {reason}") from error
        raise UserError(
            f"{name}: no such folder, and no hub model that can be read; check the name, or download it ({reason})"
        ) from error
    return (with_lora(model, lora, seed) if lora is not None else model), tokenizer


def with_lora(model: Any, settings: Mapping[str, Any], seed: int = 0) -> Any:
    """Adds a new adapter, the only part that is trained from then on; `lora_alpha` is twice the rank unless named.

    The same seed gives the same weights. What torch draws elsewhere is not changed by it.

    Raises:
        UserError: The model has an adapter already, or peft knows no such setting.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    if hasattr(model, "disable_adapter"):
        raise UserError("the model has an adapter already; train on with it, or load the base model for a new one")
    try:
        given = {"task_type": "CAUSAL_LM", "target_modules": "all-linear", **settings}
        if "r" in given:
            given.setdefault("lora_alpha", 2 * given["r"])
        config = LoraConfig(**given)
        with quiet(), torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            return get_peft_model(model, config)
    except (TypeError, ValueError) as error:
        raise UserError(f"lora = {dict(settings)}: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars of transformers, and its warnings to peft of what will be renamed."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _read(name: str, dtype: Any) -> tuple[Any, Any]:
    import transformers

    folder = Path(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **_NO_CODE)
    kind: Any = transformers.AutoModelForCausalLM
    if not (folder / "adapter_config.json").is_file():
        return kind.from_pretrained(str(folder), dtype=dtype, **_NO_CODE), tokenizer
    from peft import AutoPeftModelForCausalLM

    return AutoPeftModelForCausalLM.from_pretrained(name, is_trainable=True, dtype=dtype, **_NO_CODE), tokenizer
