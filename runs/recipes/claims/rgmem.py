"""What is claimed of RGMem's mechanisms in `world.rgmem`.

Predictions follow from how the world is built (`data.worlds.rgmem`): spells of noise of two and three signals, late
turns of five and ten. Changed settings are either the paper's ablations (tables 3 and 4), points of its sweeps (figures
4, 6 and 8), a threshold that nothing reaches, or a predictor that says nothing.
"""

from __future__ import annotations

from .claim import Claim, Claims

FACTS = "recall_user_shared_facts"
HAPPENED = "what_happened_last"
LATEST = "acknowledge_latest_user_preferences"
COURSE = "track_full_preference_evolution"
REASON = "recalling_the_reasons_behind_previous_updates"
ALIGNED = "provide_preference_aligned_recommendations"
IDEAS = "suggest_new_ideas"
SCENARIOS = "generalizing_to_new_scenarios"

RELATIONS = (LATEST, COURSE, REASON)
CONCEPTS = (ALIGNED, SCENARIOS)
NEVER = 999
ABLATIONS = (
    Claim("w/o L0", (FACTS,), {"use_l0": False}),
    Claim("w/o L1", (HAPPENED, *RELATIONS, *CONCEPTS, IDEAS), {"use_l1": False}),
    Claim("w/o RG", (LATEST, COURSE, *CONCEPTS), {"use_rg": False}),
)
STARVED = (
    Claim("R_K1 never fires", RELATIONS, {"theta_inf": NEVER}),
    Claim("R_K2, so R_K3, never fires", (*CONCEPTS, IDEAS), {"theta_sum": NEVER}),
)
THRESHOLDS = (
    Claim("theta_inf 1, theta_sum 2", (LATEST, COURSE, *CONCEPTS), {"theta_inf": 1, "theta_sum": 2}),
    Claim("theta_inf 2, theta_sum 4", (LATEST, COURSE, *CONCEPTS), {"theta_inf": 2, "theta_sum": 4}),
    Claim("theta_inf 4, theta_sum 8", (*RELATIONS, *CONCEPTS), {"theta_inf": 4, "theta_sum": 8}),
    Claim("theta_inf 5, theta_sum 10", (*RELATIONS, *CONCEPTS), {"theta_inf": 5, "theta_sum": 10}),
    Claim("theta_inf 2", (LATEST, COURSE), {"theta_inf": 2}),
    Claim("theta_inf 4", RELATIONS, {"theta_inf": 4}),
    Claim("theta_sum 2", CONCEPTS, {"theta_sum": 2}),
    Claim("theta_sum 12", CONCEPTS, {"theta_sum": 12}),
)
RECALL = (
    Claim("facts 1", (FACTS,), {"facts": 1}),
    Claim("facts 15", (), {"facts": 15}),
    Claim("conclusions 5", (FACTS,), {"conclusions": 5}),
    Claim("conclusions 60", (), {"conclusions": 60}),
    Claim("nodes 1", (ALIGNED,), {"nodes": 1}),
    Claim("nodes 8", (), {"nodes": 8}),
    Claim("node_cosine 1.01: no name found", (HAPPENED, *RELATIONS, *CONCEPTS, IDEAS), {"node_cosine": 1.01}),
    Claim("segment_turns 4", (), {"segment_turns": 4}),
)
SILENT = (
    Claim(
        "silent: synthesize", (FACTS, HAPPENED, *RELATIONS, *CONCEPTS, IDEAS), silent=frozenset({"fact", "conclusions"})
    ),
    Claim("silent: extract", (HAPPENED, *RELATIONS, *CONCEPTS, IDEAS), silent=frozenset({"entity_paths"})),
    Claim("silent: label (the fact stands in)", (), silent=frozenset({"edge_labels"})),
    Claim("silent: label, w/o L0", (HAPPENED,), silent=frozenset({"edge_labels"}), beside={"use_l0": False}),
    Claim("silent: R_K1", RELATIONS, silent=frozenset({"fact_summary", "inferred_traits"})),
    Claim("silent: R_K2", (*CONCEPTS, IDEAS), silent=frozenset({"general_facts", "specific_facts"})),
    Claim("silent: R_K3", (SCENARIOS,), silent=frozenset({"macro_law", "core_traits", "restrictions"})),
    Claim(
        "silent: rewrite, w/o RG",
        (LATEST, REASON, ALIGNED, IDEAS),
        silent=frozenset({"concept_summary"}),
        beside={"use_rg": False},
    ),
    Claim("silent: plan", (HAPPENED, *RELATIONS), silent=frozenset({"keywords"})),
)
CLAIMS = (*ABLATIONS, *STARVED, *THRESHOLDS, *RECALL, *SILENT)
APART = {
    "segment_turns": "ours: the paper gives no rule of segmentation; sessions here are as short as a segment",
    "merge_cosine": "ours: the paper merges names by their sense, by no rule of its own; here each has one spelling",
    "hybrid": "ours, off: search by words and cosine together; the paper does not have it",
    "layer conclusions": "the paper does not ablate the layers of a plan; here no question is planned for this one",
}
RGMEM = Claims("rgmem", "world.rgmem", CLAIMS, APART)
"""Those of the paper."""
