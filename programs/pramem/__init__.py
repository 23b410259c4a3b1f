"""PraMem: experience from practice on a user's own records, for predicting what the user does next."""

from .method import ExperiencedPrediction, PraMem

__all__ = ["ExperiencedPrediction", "PraMem"]
