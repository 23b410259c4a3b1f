"""MemoryOS of its authors' package: short, middle and long-term memory of question and answer.

The history's first speaker is its user, all others are its assistant. The run's embedder takes the
place of sentence-transformers (see `sentence_transformers.py`), and faiss-cpu that of faiss-gpu.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# At the end: this file is called as the package is.
sys.path.append(str(Path(__file__).parent))

from memoryos import Memoryos


@dataclass
class Exchange:
    """What the user says, and what is answered up to the user's next words."""

    time: str
    question: str = ""
    answers: list[str] = field(default_factory=list)
    turn_ids: list[str] = field(default_factory=list)

    @property
    def answer(self) -> str:
        """All answers, one per line."""
        return "\n".join(self.answers)


class System:
    """One `add_memory` per exchange."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.memory = Memoryos(
            user_id="user",
            openai_api_key=settings["key"],
            openai_base_url=settings["url"],
            data_storage_path=folder,
            llm_model=settings["lm"],
        )
        # The models of the run have time limits and retries of their own.
        client = self.memory.client.client
        client.timeout = None
        client.max_retries = 0
        self.user = ""
        """The first speaker; "" before the first turn."""
        self.turn_ids: dict[str, list[str]] = {}
        """The ids of the turns of each exchange, by its text."""

    def add(self, session: dict[str, Any]) -> None:
        """Add the exchanges of a session."""
        for exchange in self._exchanges(session):
            key = _page_key(exchange.question, exchange.answer)
            self.turn_ids[key] = exchange.turn_ids
            time = exchange.time or None
            self.memory.add_memory(exchange.question, exchange.answer, timestamp=time)

    def _exchanges(self, session: dict[str, Any]) -> list[Exchange]:
        """Pair what the user says with what is answered.

        MemoryOS knows a user and an assistant. Whoever speaks first of all is taken as the user,
        in all sessions.
        """
        exchanges: list[Exchange] = []
        for turn in session["turns"]:
            if not self.user:
                self.user = turn["speaker"]
            is_user = turn["speaker"] == self.user
            # A session that begins with an answer has a first exchange without a question.
            if is_user or not exchanges:
                exchanges.append(Exchange(time=turn["time"]))

            exchange = exchanges[-1]
            text = f"{turn['speaker']}: {turn['text']}"
            if is_user:
                exchange.question = text
            else:
                exchange.answers.append(text)
            exchange.turn_ids.append(turn["id"])
        return exchanges

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return the first `k` entries that MemoryOS recalls for a query.

        The order is: pages of its middle-term memory, facts about the user and the assistant, pages
        of its short-term memory from the newest to the oldest. Only pages name their source turns.
        """
        context = self.memory.retriever.retrieve_context(query, user_id="user")
        facts = [
            *context["retrieved_user_knowledge"],
            *context["retrieved_assistant_knowledge"],
        ]
        recent_pages = reversed(self.memory.short_term_memory.get_all())

        entries = [self._page_entry(page) for page in context["retrieved_pages"]]
        for fact in facts:
            # MemoryOS does not say which turns a fact comes from.
            entries.append({"text": f"({fact['timestamp']}) {fact['knowledge']}"})
        entries.extend(self._page_entry(page) for page in recent_pages)
        return entries[:k]

    def _page_entry(self, page: dict[str, Any]) -> dict[str, Any]:
        """Return a page with the ids of its turns."""
        key = _page_key(page.get("user_input", ""), page.get("agent_response", ""))
        text = f"({page.get('timestamp', '')}) {key}"
        return {"text": text, "ids": self.turn_ids.get(key, [])}


def _page_key(question: str, answer: str) -> str:
    """Return the text of an exchange, by which its page is found again."""
    return f"{question}\n{answer}"
