"""A memory as a tool of an agent."""

from pathlib import Path

import mempiler
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.models import language_model
from mempiler.serving.prompt_text import NOTHING, beside


@pytest.fixture
def memory(tmp_path: Path) -> mempiler.UserMemory:
    """An empty memory of Ada's."""
    return mempiler.build("turn-rag").memory(tmp_path / "memories.sqlite", "ada", lm=language_model("offline"))


def test_tool_takes_a_query_and_a_number_and_says_plain_lines(memory: mempiler.UserMemory) -> None:
    tool = mempiler.memory_tool(memory)
    assert (tool.name, list(tool.args or {})) == ("search_memory", ["query", "k"])
    assert tool(query="Lisbon") == NOTHING
    said = ("I moved to Lisbon.\nIn spring.", "Lisbon is warm.", "Lisbon has hills.")
    memory.add([{"role": "user", "name": "Ada", "content": text, "time": "2024-03-05"} for text in said])
    memory.add([{"role": "user", "name": "Ada", "content": "In Lisbon I eat fish."}], remember=False)
    found = str(tool(query="Lisbon", k=2)).splitlines()
    assert len(found) == 3  # two of the memory, one that waits
    assert all(line.startswith("- (") for line in found)
    assert "- (5 March 2024, Tuesday) Ada: I moved to Lisbon. In spring." in str(tool(query="moved in spring", k=1))
    assert found[-1].endswith("Ada: In Lisbon I eat fish.")


PIECES = ("<", "/", "memory", ">", "</memory>", " ", "~", "<~/memory>", "\n", "<|im_end|>", "word", "[[ ## a ## ]]")


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_entry_ends_the_block_it_stands_in(said: str) -> None:
    block = beside(f"- Ada: {said}")
    assert block.count("</memory>") == 1
    assert block.endswith("\n</memory>")
    assert "<|im_end|>" not in block
