"""Say, before a run begins, on which data and models its numbers will rest."""

from __future__ import annotations

from typing import Any

from ..engines.model_names import is_offline
from .console import Output
from .experiment import Part, chosen_examples
from .manifest import Manifest, read_manifest
from .program_address import program_folder
from .setup import RunConfig
from .split_plan import plan_split


def announce(setup: RunConfig, program: Any = None, part: Part | None = None) -> None:
    """Print on standard error what a run rests on: data, number of questions, models, whether it is a smoke test.

    Args:
        setup: The run's.
        program: What is compiled or scored; a saved program has its own adapter and embedder.
        part: Which questions an evaluation asks; None for a run that needs all three parts.
    """
    _print_line(f"{_data(setup)} ({_questions(setup, part)})", setup, _manifest(program))
    for note in _split_notes(setup, part):
        Output(stderr=True).print(f"note: {note}")


def _split_notes(setup: RunConfig, part: Part | None) -> list[str]:
    """Return what a user should know of the sizes of the parts before anything is paid for."""
    if part is None:
        plan = plan_split(setup)
        return plan.shortages() if plan.dev.allows_verdict else [*plan.shortages(), plan.dev.line()]
    if part == "all" and setup.test is None:
        return []
    # A size of test alone means the test part.
    return plan_split(setup).shortages({"test" if part == "all" else part})


def announce_models(setup: RunConfig, data: str) -> None:
    """Print the same line for a run over several data sets, whose questions are not counted."""
    _print_line(data, setup, saved=None)


def _print_line(data: str, setup: RunConfig, saved: Manifest | None) -> None:
    models = f"LM: {_models(setup)}; embedder: {_embedder(setup, saved)}; adapter: {_adapter(setup, saved)}"
    smoke_test = "" if _is_genuine(setup) else " - a smoke test, not comparable with published numbers"
    Output(stderr=True).print(f"data: {data}; {models}{smoke_test}")


def _is_genuine(setup: RunConfig) -> bool:
    own_data = setup.data is not None or setup.questions is not None
    return own_data and not is_offline(setup.lm)


def _data(setup: RunConfig) -> str:
    if setup.data is not None:
        return setup.data
    if setup.questions is not None and not setup.questions.source.sample:
        return setup.questions.source.path
    return "generated" if setup.load().generated else "bundled sample"


def _questions(setup: RunConfig, part: Part | None) -> str:
    benchmark = setup.load()
    if part is not None:
        return f"{len(chosen_examples(setup, benchmark, part))} questions"
    split = setup.split(benchmark)
    return f"{len(split.train)} train, {len(split.dev)} dev, {len(split.test)} test questions"


def _models(setup: RunConfig) -> str:
    offline = setup.lm == "offline"
    task = "offline engine (extractive, no language model)" if offline else setup.lm
    answers = f", answers by {setup.answer_lm}" if setup.answer_lm else ""
    replayed = f", replayed from {setup.replay}" if setup.replay else ""
    return f"{task}{answers}{replayed}"


def _manifest(program: Any) -> Manifest | None:
    folder = program_folder(program) if program and isinstance(program, str) else None
    return None if folder is None else read_manifest(folder)


def _embedder(setup: RunConfig, saved: Manifest | None) -> str:
    embedder = setup.embedder if saved is None else saved.embedder or "none"
    if embedder == "minilm" and not setup.load().english:
        embedder += " (knows English alone; --embedder e5 knows the language of these texts)"
    return embedder


def _adapter(setup: RunConfig, saved: Manifest | None) -> str:
    return setup.adapter or (setup.default_adapter if saved is None else saved.adapter)
