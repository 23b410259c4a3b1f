"""The prompts that write data, as they are asked, are in files: the rest of tests/programs/test_prompts.py."""

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import dspy
import mempiler.signatures
from mempiler.data.synthesis.memoryquest import make_memoryquest, read_profiles
from mempiler.data.synthesis.runner import Runner, Step
from mempiler.programs.adapter import adapter

from ..programs import test_prompts as prompts
from . import test_make_memoryquest as quest
from . import test_make_palset as reviews
from .conftest import good


def signatures(part: str) -> dict[str, type[dspy.Signature]]:
    """The signatures of the modules whose name begins so."""
    names = [each.name for each in pkgutil.iter_modules(mempiler.signatures.__path__) if each.name.startswith(part)]
    modules = [importlib.import_module(f"mempiler.signatures.{name}") for name in names]
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, dspy.Signature) and kind.__module__ == module.__name__
    }


def agreed(part: str, said: list[list[dict[str, Any]]]) -> None:
    """Holds one prompt of every signature against its file: of several the first by their letters."""
    found = {}
    for name, kind in signatures(part).items():
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
