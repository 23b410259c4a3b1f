"""What is claimed of H2Memory's mechanisms in `world.h2memory`.

Predictions follow from how the world is built (`data.worlds.h2memory`). Changed settings are the paper's ablations
(table 2), settings that starve a mechanism, or a predictor that says nothing.
"""

from __future__ import annotations

from .claim import Claim, Claims

SITUATION, BACKGROUND, TOPIC = "situation", "background", "topic"
BEHIND, TRADE = "need by situation", "need by background"
PRINCIPLE, LATELY = "principle", "principle lately"

LOGS = (SITUATION, BACKGROUND, BEHIND, TRADE)
TALKS = (TOPIC, BEHIND, TRADE)
MIXED = (PRINCIPLE, LATELY)
"""What gains where needs are told with fewer words: traits and troubles that topics of several themes share mix the
clusters of the embedder that compares spelling."""
ABLATIONS = (
    Claim("w/o M_G", (SITUATION, BEHIND), {"use_situations": False}),
    Claim("w/o M_B", (BACKGROUND, TRADE), {"use_background": False}, raises=MIXED),
    Claim("w/o M_T", TALKS, {"use_topics": False}),
    Claim("w/o M_P", (PRINCIPLE, LATELY), {"use_principles": False}),
)
STARVED = (
    Claim("window 1: far logs not linked", (SITUATION, BEHIND), {"window": 1}),
    Claim("situations 0", LOGS, {"situations": 0}, raises=MIXED),
    Claim("topics 0", (*TALKS, PRINCIPLE, LATELY), {"topics": 0}),
    Claim("clusters 1", (PRINCIPLE, LATELY), {"clusters": 1}),
    Claim("clustered False: one of its own", (PRINCIPLE, LATELY), {"clustered": False}),
    Claim("sample_per_cluster 1", (PRINCIPLE,), {"sample_per_cluster": 1}),
    Claim("online_month False: all at once", (LATELY,), {"online_month": False}),
    Claim("topics 6", (), {"topics": 6}),
    Claim("need_summary False: no dialogue asks", (), {"need_summary": False}),
)
# A type or principle that says nothing is set right by later dialogues: it conflicts with all they bring.
SILENT = (
    Claim("silent: link", (SITUATION, BEHIND), silent=frozenset({"links"})),
    Claim("silent: describe", LOGS, silent=frozenset({"found_situation"}), raises=MIXED),
    Claim(
        "silent: update_background",
        (BACKGROUND, TRADE),
        silent=frozenset({"updating_aspects", "updating_content"}),
        raises=MIXED,
    ),
    Claim("silent: outline", (*TALKS, PRINCIPLE, LATELY), silent=frozenset({"outlines"})),
    Claim("silent: refine (no need left)", (*TALKS, PRINCIPLE, LATELY), silent=frozenset({"detailed_need"})),
    Claim("silent: abstract_need", (PRINCIPLE,), silent=frozenset({"general_need"})),
    Claim("silent: abstract_preference", (PRINCIPLE,), silent=frozenset({"general_preference"})),
    Claim("silent: adjust_need (types fit)", (), silent=frozenset({"type_verdict"})),
    Claim("silent: adjust_preference", (LATELY,), silent=frozenset({"principle_verdict"})),
)
CLAIMS = (*ABLATIONS, *STARVED, *SILENT)
APART = {
    "seed": "ours: it draws clusters and samples",
    "need_summary": "for queries that are dialogues, of which this world has none; the paper does not ablate it",
    "adjust_need": "the paper does not ablate it; here a type needs it only where a cluster was of another theme",
}
H2MEMORY = Claims("h2memory", "world.h2memory", CLAIMS, APART)
"""Those of the paper."""
