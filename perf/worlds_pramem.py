"""What each switch and size of PraMem is for, claimed before it was measured; `worlds.py` measures.

    $ python perf/worlds.py pramem

The paper reports that each of these is needed: Table 2 deep thinking, reflection, consensus; Figure 4 rounds; Figure 5
both kinds of experience; Figure 6 both reviews. It says nothing of the others. `blind` and `execute_perturbation` are
its equations 6 and 7 in the place of what its Figures 10 and 11 print: the same reviews in other words, so that nothing
should change.
"""

from __future__ import annotations

from world_claims import Claim, Sweep

CLAIMS = (
    Claim("memory (truncation)", "lower", method="truncation"),
    Claim("deep thinking", "lower", {"deep_thinking": False}, "contrary"),
    Claim("reflection", "lower", {"reflection": False}, "lucky"),
    Claim("consensus", "lower", {"consensus": False}, "accident"),
    Claim("patterns", "lower", {"patterns": False}, "habit"),
    Claim("alerts", "lower", {"alerts": False}, "contrary"),
    Claim("groundedness review", "lower", {"groundedness": False}, "contrary"),
    Claim("generality review", "lower", {"generalizability": False}, "author"),
    Claim("distinct records", "lower", {"distinct_records": False}, "accident"),
    Claim("start from the profile", "lower", {"start": "empty"}, "stated"),
    Claim("records shown in practice", "lower", {"practice_tokens": 100}, "habit"),
    Claim("records shown beside the question", "lower", {"predict_tokens": 1}, "recent"),
    Claim("whole scenes", "lower", {"scene_chars": 20}, "habit"),
    Claim("earlier records practised", "lower", {"min_history": 60}, "habit"),
    Claim("every record once (not by recency)", "lower", {"weighting": "recency"}),
    Claim("the true scene named (not blind)", "same", {"blind": True}),
    Claim("perturbation told (not carried out)", "same", {"execute_perturbation": True}),
    Claim("one perturbation (not three)", "same", {"perturbations": 3}),
    Claim("rounds at the same time (not in order)", "same", {"parallel": False}),
    Claim("one sample a round (not two, half the rounds)", "same", {"samples": 2, "rounds": 40}),
)
"""Each leaves something out of PraMem as it is, or puts something else in its place."""

SWEEPS = (
    Sweep("practice rounds", "rounds", (5, 10, 20, 40, 60, 80), "rises"),
    Sweep("proposals that a change needs", "needed", (1, 2, 3, 4, 6, 8), "rises to 3, then falls"),
    Sweep("proposals of a reflection", "proposals", (1, 2, 3, 4, 10), "rises"),
    Sweep("virtual scenes", "virtual_scenes", (1, 2, 3, 7), "rises"),
    Sweep("rounds between adjustments", "adjust_every", (1, 5, 20, 80), "flat"),
)
