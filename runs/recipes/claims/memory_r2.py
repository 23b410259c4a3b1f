"""What is claimed of Memory-R2's mechanisms in `world.memory-r2`.

Predictions follow from how the world is built (`data.worlds.memory_r2`). Of the paper's tables none was at hand; its
ablation is the single agent. The other settings are those of its released code, and ours (`same_speaker`, `abstain`).
"""

from __future__ import annotations

from .claim import Claim, Claims

ON = {"abstain": True}
CORRECTED, HALF, RETRACTED, COUNTED, THEM = "corrected", "half", "retracted", "counted", "them"
EDITED = (CORRECTED, RETRACTED, COUNTED, THEM)
"""What needs a memory shown beside a fact."""
ALL = ("stated", "changed", "many", CORRECTED, HALF, COUNTED, THEM)
"""What needs any memory at all."""

CLAIMS = (
    Claim("single agent", (THEM,), {"single_agent": True}, beside=ON),
    Claim("1 part", (CORRECTED,), {"parts": 1}, beside=ON),
    Claim("2 parts", (CORRECTED,), {"parts": 2}, beside=ON),
    Claim("8 parts", (), {"parts": 8}, beside=ON),
    Claim("parts of 1 turn", (), {"chunk_turns": 1}, beside=ON),
    Claim("parts of 8 turns", (CORRECTED,), {"chunk_turns": 8}, beside=ON),
    Claim("without the earlier parts", (HALF, THEM), {"earlier": False}, beside=ON),
    Claim("memories of both speakers", (COUNTED,), {"same_speaker": False}, beside=ON),
    Claim("no memory beside a fact", EDITED, {"related_total": 0}, beside=ON),
    Claim("1 memory beside a fact", (COUNTED, THEM), {"related": 1}, beside=ON),
    Claim("3 memories beside a fact", (COUNTED, THEM), {"related": 3}, beside=ON),
    Claim("4 memories beside a fact", (), {"related": 4}, beside=ON),
    Claim("10 memories beside a fact", (), {"related": 10}, beside=ON),
    Claim("min_score .3", (), {"min_score": 0.3}, beside=ON),
    Claim("min_score .6", (RETRACTED, COUNTED, THEM), {"min_score": 0.6}, beside=ON),
    Claim("5 memories read", ("many",), {"read_top": 5}, beside=ON),
    Claim("10 memories read", (), {"read_top": 10}, beside=ON),
    Claim("50 memories read", (), {"read_top": 50}, beside=ON),
    Claim("ranked by words too", (), {"hybrid": True}, beside=ON),
    Claim("a reader that does not abstain", ("unsaid", RETRACTED), {"abstain": False}, beside=ON),
    Claim("turns instead of a memory", (COUNTED,), beside=ON, method="turn-rag", keeps=()),
    Claim("silent: extract", ALL, silent=frozenset({"facts"}), beside=ON),
    Claim("silent: manage", ALL, silent=frozenset({"operations"}), beside=ON),
)
APART = {
    "hybrid": "ours, off: search by words and cosine together; the released code does not have it",
}
MEMORY_R2 = Claims("memory-r2", "world.memory-r2", CLAIMS, APART)
"""Those of the paper."""
