"""The prompts that write data, as they are asked, are in files: the rest of tests/programs/test_prompts.py."""

from pathlib import Path
from typing import Any

import dspy
from mempiler.data.synthesis.memoryquest import make_memoryquest, read_profiles
from mempiler.data.synthesis.runner import Runner, Step
from mempiler.programs.adapter import adapter

from tests.suite import suite

from ..programs import test_prompts as prompts
from . import test_make_memoryquest as quest
from . import test_make_palset as reviews
from .conftest import good


def agreed(part: str, said: list[list[dict[str, Any]]]) -> None:
    """Holds one prompt of every signature against its file: of several the first by their letters."""
    found = {}
    for name, kind in ((kind.__name__, kind) for kind in suite() if f".{part}" in kind.__module__):
        system = adapter().format_system_message(Step(name, kind).prompt)
        mine = [prompts.shown(prompt) for prompt in said if prompt[0]["content"] == system]
        assert mine, f"{name} is not asked: make its case reach it"
        found[name] = min(mine)
    prompts.agree(found, part)


def test_memoryquest_is_asked_for_as_was_reviewed(scripted: Any, profiles: Path, tmp_path: Path) -> None:
    with prompts.heard(scripted(quest.good)) as found:
        runner = Runner(threads=1)
        make_memoryquest(read_profiles(profiles)[:1], tmp_path / "quest", runner, quest.Near(), lambda line: None)
    agreed("synthesis_memoryquest", found.prompts)


def test_a_palset_is_asked_for_as_was_reviewed(made_palset: Any) -> None:
    heard = prompts.Heard()
    with dspy.context(callbacks=[heard], adapter=adapter()):
        made_palset(lambda *asked: reviews.faulty(*asked[:2]) or good(*asked), reviews=1, threads=1)
    agreed("synthesis_palset", heard.prompts)
