"""What is claimed of PraMem's mechanisms in `world.pramem`.

Predictions follow from how the world is built (`data.worlds.pramem`). The paper reports that deep thinking, reflection
and consensus (Table 2), rounds (Figure 4), both kinds of experience (Figure 5) and both reviews (Figure 6) are needed,
and nothing of the other settings. Equations 6 and 7 (`execute_perturbation`, `blind`) are the same reviews as those of
Figures 10 and 11, so that they should change nothing here.
"""

from __future__ import annotations

from .claim import Claim, Claims

HABIT, LUCKY, CONTRARY, OUTDATED, STATED = "habit", "lucky", "contrary", "outdated", "stated"
ACCIDENT, AUTHOR, PART, RECENT = "accident", "author", "part", "recent"

LEARNT = (HABIT, LUCKY, CONTRARY, OUTDATED)
"""What practice teaches."""
AT_NOON = (CONTRARY, OUTDATED, LUCKY, STATED, ACCIDENT, AUTHOR, PART)
"""Questions of which a claim about noon, which no record bears out, gets a say."""
TRIAL = frozenset({"useful_patterns", "useful_alerts", "reasoning", "predicted_action"})
ABLATIONS = (
    Claim("w/o deep-thinking trial", (CONTRARY,), {"deep_thinking": False}),
    Claim("w/o reflective proposal", (CONTRARY, LUCKY), {"reflection": False}),
    Claim("w/o consensual adjustment", (ACCIDENT,), {"consensus": False}),
    Claim("w/o patterns", (HABIT, LUCKY, OUTDATED, STATED), {"patterns": False}),
    Claim("w/o alerts", (CONTRARY,), {"alerts": False}),
    Claim("w/o groundedness review", AT_NOON, {"groundedness": False}),
    Claim("w/o generality review", (AUTHOR,), {"generalizability": False}),
)
SIZES = (
    Claim("rounds 5", LEARNT, {"rounds": 5}),
    Claim("rounds 40", LEARNT, {"rounds": 40}),
    Claim("needed 1", (ACCIDENT,), {"needed": 1}),
    Claim("needed 2", (ACCIDENT,), {"needed": 2}),
    Claim("needed 8", LEARNT, {"needed": 8}),
    Claim("distinct_records off", (ACCIDENT,), {"distinct_records": False}),
    Claim("proposals 1", (HABIT, CONTRARY, OUTDATED), {"proposals": 1}),
    Claim("proposals 3", (CONTRARY,), {"proposals": 3}),
    Claim("proposals 4", (), {"proposals": 4}),
    Claim("virtual_scenes 1", LEARNT, {"virtual_scenes": 1}),
    Claim("virtual_scenes 3", (), {"virtual_scenes": 3}),
    Claim("scene_chars 20: none is whole", LEARNT, {"scene_chars": 20}),
    Claim("practice_tokens 1: no past", LEARNT, {"practice_tokens": 1}),
    Claim("predict_tokens 1: no records", (RECENT,), {"predict_tokens": 1}),
    Claim("min_history 90: few samples", LEARNT, {"min_history": 90}),
    Claim("start empty", (STATED,), {"start": "empty"}),
)
VARIANTS = (
    Claim("perturbation carried out (Eq. 6)", (), {"execute_perturbation": True}),
    Claim("true scene to be found (Eq. 7)", (), {"blind": True}),
    Claim("perturbations 3", (), {"perturbations": 3}),
    Claim("adjust_every 1", (), {"adjust_every": 1}),
    Claim("adjust_every 80", (), {"adjust_every": 80}),
    Claim("samples 2, rounds 40", (), {"samples": 2, "rounds": 40}),
    Claim("one after another", (), {"parallel": False}),
    Claim("drawn by recency (as released)", LEARNT, {"weighting": "recency"}),
)
SILENT = (
    Claim("silent: trial (always taken for wrong)", (HABIT, CONTRARY), silent=TRIAL),
    Claim("silent: reflect", LEARNT, silent=frozenset({"tasks", "proposals"})),
    Claim("silent: plan", LEARNT, silent=frozenset({"plans"})),
    Claim("silent: judge_groundedness", LEARNT, silent=frozenset({"groundedness"})),
    Claim("silent: write_scenes", LEARNT, silent=frozenset({"virtual_scenes"})),
    Claim("silent: judge_generality", LEARNT, silent=frozenset({"generality"})),
    Claim("silent: adjust", LEARNT, silent=frozenset({"decisions", "changes"})),
    Claim("silent: rewrite (Eq. 6)", LEARNT, silent=frozenset({"rewritten"}), beside={"execute_perturbation": True}),
    Claim("silent: judge of Eq. 6", LEARNT, silent=frozenset({"holding"}), beside={"execute_perturbation": True}),
    Claim("silent: judge of Eq. 7", LEARNT, silent=frozenset({"picks"}), beside={"blind": True}),
)
CLAIMS = (*ABLATIONS, *SIZES, *VARIANTS, *SILENT)
APART = {
    "samples": "ours: samples of one record a round; the paper has one",
    "adjust_every": "the paper fixes it and ablates nothing of it: when the pool is looked at, not what is in it",
    "perturbations": "the paper has one and ablates nothing of it",
    "execute_perturbation": "equation 6, carried out or only described: the same review",
    "blind": "equation 7, named or to be found: the same review",
    "parallel": "ours: the same calls, at the same time or not",
    "seed": "ours: draws the records of a round",
}
PRAMEM = Claims("pramem", "world.pramem", CLAIMS, APART)
"""Those of the paper."""
