"""Optimizers: DSPy's teleprompters behind one interface, each a class with its settings."""

from .better_together import BetterTogether
from .bootstrap import Bootstrap
from .bootstrap_random import BootstrapRandom
from .copro import Copro
from .finetune import Finetune
from .gepa import Gepa
from .infer_rules import InferRules
from .knn import Knn
from .labeled import Labeled
from .mipro import Mipro
from .optimizer import Optimizer
from .settings_search import SettingsSearch
from .simba import Simba

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
    "Optimizer",
    "SettingsSearch",
    "Simba",
]
