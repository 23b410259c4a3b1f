"""LoGo-GRPO: reinforcement learning of memory operations with global and local groups (Memory-R2)."""

from .teleprompter import LoGoGRPO

__all__ = ["LoGoGRPO"]
