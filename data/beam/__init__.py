"""BEAM: chats of 100K to 10M tokens, ten abilities, rubrics."""
