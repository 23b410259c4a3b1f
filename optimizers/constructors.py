"""Settings of an optimizer beyond the catalog: the parameters of DSPy's and gepa's constructors.

    --optimizer-set reflection_minibatch_size=5
    --optimizer-set "sampling_strategy=PxNSampling(2, 3)"                                an object of gepa, by its class
    --optimizer-set "stop_callbacks=[NoImprovementStopper(5), ScoreThresholdStopper(0.9)]"

What the job itself decides (metric, models, threads, seed, logs) cannot be set.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from ..errors import UserError

_CONSTRUCTORS = {
    "bootstrap": ("dspy.BootstrapFewShot",),
    "bootstrap-random": ("dspy.BootstrapRS", "dspy.BootstrapRS.compile"),
    "mipro": ("dspy.MIPROv2", "dspy.MIPROv2.compile"),
    "copro": ("dspy.COPRO",),
    "simba": ("dspy.SIMBA",),
    "gepa": ("dspy.GEPA", "gepa.optimize"),
    "infer-rules": ("dspy.InferRules", "dspy.BootstrapFewShot"),
    "better-together": ("dspy.BetterTogether.compile",),
    "finetune": ("dspy.BootstrapFinetune",),
}
_OF_THE_JOB = {
    *("seed", "num_threads", "max_errors", "metric_threshold", "minibatch", "strategy", "valset_ratio", "verbose"),
    *("display_progress_bar", "raise_on_exception", "use_cloudpickle", "requires_permission_to_run"),
}
"""What the job gives, or what would print or keep something elsewhere, as all that is tracked does."""
_REFUSED = {"max_reflection_cost", "module_selector"}
"""What `dspy.GEPA` does not hand on."""
_OBJECTS = {
    "sampling_strategy": "gepa.strategies.proposal_sampling",
    "selection_strategy": "gepa.strategies.proposal_selection",
    "stop_callbacks": "gepa.utils.stop_condition",
    "acceptance_criterion": "gepa.strategies.acceptance",
    "batch_sampler": "gepa.strategies.batch_sampler",
    "candidate_selection_strategy": "gepa.strategies.candidate_selector",
    "component_selector": "gepa.strategies.component_selector",
    "val_evaluation_policy": "gepa.strategies.eval_policy",
}
"""Settings that may be an object, and the module of its class."""
_SOME = (
    *("k", "max_tries", "bsize", "num_candidates", "minibatch_size", "minibatch_full_eval_steps"),
    *("view_data_batch_size", "reflection_minibatch_size", "merge_val_overlap_floor", "max_full_evals"),
    "max_metric_calls",
)
_LEAST = {**dict.fromkeys(_SOME, 1), "breadth": 2, "temperature_for_sampling": 0.001}
"""What numbers are at least; any other that counts is 0 or more."""


def extra_settings(name: str) -> dict[str, Any]:
    """The settings that an optimizer's constructors take beside those of the catalog, with their defaults."""
    return {key: each.default for key, each in _parameters(name).items()}


def validate_settings(name: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an optimizer: the catalog's defaults, and what is given.

    Raises:
        UserError: One is unknown, of the wrong kind, or too small: DSPy would trip over it when something is paid.
    """
    known = {**defaults, **{key: value for key, value in extra_settings(name).items() if key not in defaults}}
    if unknown := set(given) - set(known):
        raise UserError(f"optimizer {name!r} has no setting {min(unknown)!r}; it has: {', '.join(known)}")
    instantiate_settings(given)
    for key, value in given.items():
        if not (value is known[key] or (key in _OBJECTS and _is_object(value))):
            _check(name, key, value, known[key])
    return {**defaults, **given}


def _check(name: str, key: str, value: Any, default: Any) -> None:
    parameter = _parameters(name).get(key)
    kind: Any = parameter.annotation if parameter else inspect.Parameter.empty
    if isinstance(kind, str) or kind is inspect.Parameter.empty:
        kind = Any if default is None else type(default)
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except PydanticUserError:
        return  # a class of the library's own
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UserError(f"optimizer {name!r}: {key} = {value!r}: {reason}; its default is {default!r}") from None
    least = _LEAST.get(key, -math.inf if isinstance(default, float) else 0)
    if isinstance(value, int | float) and value < least:
        raise UserError(f"optimizer {name!r}: {key} = {value}: it is {least} or more; its default is {default!r}")


def pop_settings(function: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a function takes; they are removed from the others."""
    names = inspect.signature(function).parameters
    return {key: settings.pop(key) for key in [*settings] if key in names}


def instantiate_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the objects that some of them name, as `Class(1, name=2)` or a list of such."""
    return {
        key: _made(key, value) if key in _OBJECTS and _is_object(value) else value for key, value in settings.items()
    }


@functools.cache
def _parameters(name: str) -> dict[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for path in _CONSTRUCTORS.get(name, ()):
        module, *rest = path.split(".")
        function: Any = functools.reduce(getattr, rest, importlib.import_module(module))
        found |= {key: each for key, each in inspect.signature(function).parameters.items() if key not in found}
    return {key: each for key, each in found.items() if _is_setting(key, each)}


def _is_setting(key: str, parameter: inspect.Parameter) -> bool:
    """Whether it is a plain value, or one of the objects, and the user's to choose."""
    if key in _OF_THE_JOB | _REFUSED or any(part in key for part in ("wandb", "mlflow", "track")):
        return False
    if parameter.default is None:
        words = str(parameter.annotation)
        return key in _OBJECTS or key == "stop_at_score" or any(kind in words for kind in ("int", "float", "Literal"))
    return isinstance(parameter.default, bool | int | float | str)


def _is_object(value: Any) -> bool:
    return isinstance(value, str) and value.rstrip().endswith((")", "]"))


def _made(key: str, text: str) -> Any:
    module = importlib.import_module(_OBJECTS[key])

    def made(node: ast.expr) -> Any:
        if isinstance(node, ast.List):
            return [made(each) for each in node.elts]
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError("write it as Class(1, name=2)")
        named = {each.arg or "": ast.literal_eval(each.value) for each in node.keywords}
        return getattr(module, node.func.id)(*map(ast.literal_eval, node.args), **named)

    try:
        return made(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, AttributeError) as error:
        known = [name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__]
        raise UserError(f"{key} = {text}: {error}; {module.__name__} has: {', '.join(known)}") from error
