"""PAL-Bench on PAL-Set: needs, solutions, selections and dialogues."""
