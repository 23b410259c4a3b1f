"""Which settings of `trl.GRPOConfig` have an effect in a training here; all others are refused.

TRL makes the optimizer, shards the weights and lets vLLM sample. Groups, advantages, the loss and
the loop are ours, so TRL's settings of these would be accepted and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import UnknownNameError, UserError

SHARDING = ("fsdp", "fsdp_config", "deepspeed")
OPTIMIZER = (
    "optim",
    "optim_args",
    "optim_target_modules",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
)
ARITHMETIC = ("bf16", "tf32", "full_determinism")
VLLM = ("use_vllm", "vllm_mode")
VLLM_SERVER = (
    "vllm_server_base_url",
    "vllm_server_host",
    "vllm_server_port",
    "vllm_server_timeout",
    "vllm_group_port",
)
VLLM_COLOCATED = (
    "vllm_gpu_memory_utilization",
    "vllm_max_model_length",
    "vllm_model_impl",
    "vllm_tensor_parallel_size",
)
EFFECTIVE = (*SHARDING, *OPTIMIZER, *ARITHMETIC, *VLLM, *VLLM_SERVER, *VLLM_COLOCATED)

OWN_NAMES = {
    "beta": "beta",
    "delta": "dual_clip",
    "epsilon": "clip_low",
    "epsilon_high": "clip_high",
    "gradient_checkpointing": "gradient_checkpointing",
    "importance_sampling_level": "ratio",
    "learning_rate": "learning_rate",
    "loss_type": "loss_type",
    "max_completion_length": "answer_tokens",
    "max_grad_norm": "max_grad_norm",
    "num_generations": "num_rollouts",
    "num_iterations": "epochs",
    "num_train_epochs": "steps",
    "per_device_train_batch_size": "micro_batch_size",
    "scale_rewards": "scale_rewards",
    "seed": "seed",
    "temperature": "temperature",
    "weight_decay": "weight_decay",
}
"""TRL's settings that have a counterpart in `--train-set`, by the name of that."""


def check_trl_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of TRL that would change nothing.

    Raises:
        UserError: TRL does not have the setting, or it has no effect here.
    """
    for name in settings:
        _check_is_effective(name)
    _check_conditions(settings)


def _check_is_effective(name: str) -> None:
    """Refuse a setting of TRL that never has an effect on a training here.

    Raises:
        UserError: One of our own settings decides instead, or none does.
    """
    if name in EFFECTIVE:
        return
    if name in OWN_NAMES:
        raise UserError(
            f"trl: {name} is not TRL's to decide; set --train-set {OWN_NAMES[name]}=VALUE"
        )
    # The message begins with "unknown".
    raise UnknownNameError("or ineffective setting of trl", name, EFFECTIVE)


def _check_conditions(settings: Mapping[str, Any]) -> None:
    """Refuse settings of parts that are not used, such as a server's address without vLLM."""
    is_sharded = bool(settings.get("fsdp") or settings.get("deepspeed"))
    vllm_mode = settings.get("vllm_mode", "colocate") if settings.get("use_vllm") else None

    for name in settings:
        if name == "fsdp_config" and not settings.get("fsdp"):
            raise UserError("trl: fsdp_config has no effect without fsdp; add fsdp = true")
        if name == "bf16" and not is_sharded:
            raise UserError(
                "trl: bf16 has no effect on weights that are not sharded; "
                "set --train-set dtype=bfloat16"
            )
        if name in ("vllm_mode", *VLLM_SERVER, *VLLM_COLOCATED) and vllm_mode is None:
            raise UserError(f"trl: {name} has no effect without vLLM; add use_vllm = true")
        if name in VLLM_SERVER and vllm_mode != "server":
            raise UserError(
                f"trl: {name} has no effect on vLLM in this process; add vllm_mode = 'server'"
            )
        if name in VLLM_COLOCATED and vllm_mode != "colocate":
            raise UserError(
                f"trl: {name} has no effect on a vLLM server; "
                "start the server with it, and leave it out"
            )
