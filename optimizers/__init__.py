"""Optimizers: DSPy's teleprompters behind one interface, and the settings of each."""

from .settings import (
    BetterTogether,
    Bootstrap,
    BootstrapRandom,
    Copro,
    Finetune,
    Gepa,
    InferRules,
    Knn,
    Labeled,
    Mipro,
    OptimizerSettings,
    Simba,
)

__all__ = [
    "BetterTogether",
    "Bootstrap",
    "BootstrapRandom",
    "Copro",
    "Finetune",
    "Gepa",
    "InferRules",
    "Knn",
    "Labeled",
    "Mipro",
    "OptimizerSettings",
    "Simba",
]
