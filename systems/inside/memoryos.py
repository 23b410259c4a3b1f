"""MemoryOS of its authors' package: short, middle and long-term memory of pairs of what was said and answered.

The history's first speaker is its user, all others are its assistant. The run's embedder stands in for
sentence-transformers, and faiss-cpu for faiss-gpu.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# At the end: this file is called as the package is.
sys.path.append(str(Path(__file__).parent))

from memoryos import Memoryos


class System:
    """One `add_memory` per pair."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.memory = Memoryos(
            user_id="user",
            openai_api_key=settings["key"],
            openai_base_url=settings["url"],
            data_storage_path=folder,
            llm_model=settings["lm"],
        )
        self.user = ""
        self.turns: dict[str, list[str]] = {}

    def add(self, session: dict[str, Any]) -> None:
        """Pairs what the user says with what is answered, up to the user's next words."""
        pairs: list[dict[str, Any]] = []
        for turn in session["turns"]:
            self.user = self.user or turn["speaker"]
            text, own = f"{turn['speaker']}: {turn['text']}", turn["speaker"] == self.user
            if own or not pairs:
                pairs.append({"said": "", "answered": "", "time": turn["time"], "turns": []})
            pair = pairs[-1]
            pair["said" if own else "answered"] += ("\n" if pair["said" if own else "answered"] else "") + text
            pair["turns"].append(turn["id"])
        for pair in pairs:
            self.turns[f"{pair['said']}\n{pair['answered']}"] = pair["turns"]
            self.memory.add_memory(pair["said"], pair["answered"], timestamp=pair["time"] or None)

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Pages of its middle-term memory, then what is known of both, then what has not left its short-term memory."""
        found = self.memory.retriever.retrieve_context(query, user_id="user")
        known = found["retrieved_user_knowledge"] + found["retrieved_assistant_knowledge"]
        recent = self.memory.short_term_memory.get_all()
        return [
            *(self._page(page) for page in found["retrieved_pages"]),
            *({"text": f"({each['timestamp']}) {each['knowledge']}"} for each in known),
            *(self._page(page) for page in reversed(recent)),
        ][:k]

    def _page(self, page: dict[str, Any]) -> dict[str, Any]:
        said, answered = page.get("user_input", ""), page.get("agent_response", "")
        text = f"({page.get('timestamp', '')}) {said}\n{answered}"
        return {"text": text, "ids": self.turns.get(f"{said}\n{answered}", [])}
