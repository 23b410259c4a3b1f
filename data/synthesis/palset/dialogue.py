"""Step 6-2 of PAL-Set: the dialogue of a session, along a script.

Limits: what the assistant may know differs between history and query set, as in the released prompts; that it
keeps to it is left to the model.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....signatures.synthesis_palset_records import DraftTurn, WriteAdviceDialogue
from ..runner import Step, whole
from .people import Session, Setting
from .script import Script, turn_problems

DIALOGUE = Step("dialogue", WriteAdviceDialogue, list[DraftTurn])
KNOWS: Mapping[str, str] = {
    "history": "The assistant has seen the user's recent experiences. It knows neither the user's background as a "
    "whole nor their preferences.",
    "query": "The assistant knows background, personality, situation and preferences of the user well, and may use "
    "them when it discusses a proposal or responds to feedback.",
}
"""What the assistant knows, by part of the data."""


def dialogue(session: Session, script: Script, setting: Setting) -> list[DraftTurn] | None:
    """The turns of a session's dialogue; None if they were given up."""
    person = session.persona.person
    inputs = {
        "profile": person.profile,
        "personality": person.personality,
        "situation": session.situation.text,
        "assistant_knows": KNOWS[session.part],
        "framework": script.framework,
        "plan": script.lines,
    }

    return setting.ask(DIALOGUE, session.id, inputs, whole("turns", turn_problems, script.plan))
