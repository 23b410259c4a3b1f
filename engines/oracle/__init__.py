"""The oracle engine: does the predictors' jobs in the worlds with known answers. A test instrument, no model."""

from .engine import AsyncOracleEngine, OracleEngine

__all__ = ["AsyncOracleEngine", "OracleEngine"]
