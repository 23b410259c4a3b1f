"""Load a language model and its tokenizer from a folder or from the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import MissingDependencyError, UserError
from ...text import one_line

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

REQUIRED_PACKAGES = ("torch", "transformers", "peft")

DTYPES = ("float32", "bfloat16")


class ModelSource(NamedTuple):
    """Where a model is loaded from, and how; see `LocalModel.load`."""

    name: str
    """A folder, or the id of a model of the hub."""
    device: str | None = None
    lora: Mapping[str, Any] | None = None
    seed: int = 0
    dtype: str | None = None


class LoadedModel(NamedTuple):
    """A causal language model, or a peft model over one, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def check_installed() -> None:
    """Raise a MissingDependencyError if a package of the `local` extra is not installed."""
    for package in REQUIRED_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError(package, "local")


def load(source: ModelSource) -> LoadedModel:
    """Load a model and its tokenizer; arguments and errors are those of `LocalModel.load`."""
    if source.dtype is not None and source.dtype not in DTYPES:
        raise UserError(f"dtype {source.dtype!r} is unknown; choose one of: {', '.join(DTYPES)}")
    check_installed()

    try:
        device = _device(source.device)
        with quiet():
            loaded = _read(source.name, _dtype(source.dtype, device))
        loaded.model.to(device)  # pyright: ignore[reportArgumentType]
    except (OSError, ValueError, RuntimeError) as error:
        reason = one_line(error, 200)
        if Path(source.name).is_dir():
            message = f"{source.name}: cannot be loaded as a language model: {reason}"
        else:
            message = (
                f"{source.name}: no such folder, and no hub model that can be read; "
                f"check the name, or download it ({reason})"
            )
        raise UserError(message) from error

    if source.lora is None:
        return loaded
    return loaded._replace(model=with_lora(loaded.model, source.lora, source.seed))


def with_lora(model: Any, settings: Mapping[str, Any], seed: int = 0) -> Any:
    """Add a new LoRA adapter to a model; only the adapter is trained from then on.

    Args:
        model: A transformers model without an adapter.
        settings: Arguments of `peft.LoraConfig`. Unless they say otherwise, every linear layer gets
            an adapter, and `lora_alpha` is twice the rank `r`.
        seed: Decides the adapter's first weights. Torch's own random state does not change.

    Raises:
        UserError: The model has an adapter already, or peft does not know a setting.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    if hasattr(model, "disable_adapter"):
        raise UserError(
            "the model has an adapter already; train on with it, or load the base model for a new "
            "one"
        )

    arguments = {"task_type": "CAUSAL_LM", "target_modules": "all-linear", **settings}
    try:
        if "r" in arguments:
            arguments.setdefault("lora_alpha", 2 * arguments["r"])
        config = LoraConfig(**arguments)
        with quiet(), torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            return get_peft_model(model, config)
    except (TypeError, ValueError) as error:
        raise UserError(f"lora = {dict(settings)}: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars of transformers, and its warnings about names that will change."""
    from transformers.utils import logging

    had_progress_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if had_progress_bars:
            logging.enable_progress_bar()


def _device(name: str | None) -> torch.device:
    """Return the device of that name; by default a GPU if there is one, else the CPU."""
    import torch

    if not name:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _dtype(name: str | None, device: torch.device) -> torch.dtype:
    """Return the dtype of that name; by default float32 on a CPU and bfloat16 elsewhere."""
    import torch

    if name is None:
        name = "float32" if device.type == "cpu" else "bfloat16"
    return torch.float32 if name == "float32" else torch.bfloat16


def _read(name: str, dtype: torch.dtype) -> LoadedModel:
    """Read a model and its tokenizer onto the CPU, with the adapter if the folder holds one.

    Code that comes with a model is never run. Without `trust_remote_code=False` transformers would
    ask on the terminal whether to run it.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = str(Path(name))
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)

    if Path(path, "adapter_config.json").is_file():
        from peft import AutoPeftModelForCausalLM

        model = AutoPeftModelForCausalLM.from_pretrained(
            path, is_trainable=True, dtype=dtype, trust_remote_code=False
        )
    else:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, trust_remote_code=False)
    return LoadedModel(model, tokenizer)
