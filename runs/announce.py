"""Say, before a run begins, on which data and models its numbers will rest."""

from __future__ import annotations

from typing import Any

from ..engines.model_names import is_offline
from .config import RunConfig
from .console import Output
from .evaluate import Part, chosen_examples
from .inputs import RunInputs
from .manifest import Manifest, read_manifest
from .program_address import program_folder
from .role_models import default_adapter
from .split_plan import plan_split


def announce(inputs: RunInputs, program: Any = None, part: Part | None = None) -> None:
    """Print on standard error what a run rests on: data, number of questions, models, whether it is a smoke test.

    Args:
        inputs: What the run is started with.
        program: What is compiled or scored; a saved program has its own adapter and embedder.
        part: Which questions an evaluation asks; None for a run that needs all three parts.
    """
    _print_line(f"{_data(inputs)} ({_questions(inputs, part)})", inputs, _manifest(program))
    for note in _split_notes(inputs, part):
        Output(stderr=True).print(f"note: {note}")


def _split_notes(inputs: RunInputs, part: Part | None) -> list[str]:
    """Return what a user should know of the sizes of the parts before anything is paid for."""
    if part is None:
        plan = plan_split(inputs)
        return plan.shortages() if plan.dev.allows_verdict else [*plan.shortages(), plan.dev.line()]
    if part == "all" and inputs.config.data.test is None:
        return []
    # A size of test alone means the test part.
    return plan_split(inputs).shortages({"test" if part == "all" else part})


def announce_models(inputs: RunInputs, data: str) -> None:
    """Print the same line for a run over several data sets, whose questions are not counted."""
    _print_line(data, inputs, saved=None)


def _print_line(data: str, inputs: RunInputs, saved: Manifest | None) -> None:
    models = f"LM: {_models(inputs.config)}; embedder: {_embedder(inputs, saved)}; adapter: {_adapter(inputs, saved)}"
    smoke_test = "" if _is_genuine(inputs) else " - a smoke test, not comparable with published numbers"
    Output(stderr=True).print(f"data: {data}; {models}{smoke_test}")


def _is_genuine(inputs: RunInputs) -> bool:
    own_data = inputs.config.data.file is not None or inputs.user_benchmark is not None
    return own_data and not is_offline(inputs.config.models.task.name)


def _data(inputs: RunInputs) -> str:
    if inputs.config.data.file is not None:
        return inputs.config.data.file
    if inputs.user_benchmark is not None and not inputs.user_benchmark.source.sample:
        return inputs.user_benchmark.source.path
    return "generated" if inputs.benchmark.generated else "bundled sample"


def _questions(inputs: RunInputs, part: Part | None) -> str:
    if part is not None:
        return f"{len(chosen_examples(inputs, part))} questions"
    split = inputs.split()
    return f"{len(split.train)} train, {len(split.dev)} dev, {len(split.test)} test questions"


def _models(config: RunConfig) -> str:
    offline = config.models.task.name == "offline"
    task = "offline engine (extractive, no language model)" if offline else config.models.task.name
    answers = f", answers by {config.models.answer.name}" if config.models.answer.name else ""
    replayed = f", replayed from {config.execution.replay}" if config.execution.replay else ""
    return f"{task}{answers}{replayed}"


def _manifest(program: Any) -> Manifest | None:
    folder = program_folder(program) if program and isinstance(program, str) else None
    return None if folder is None else read_manifest(folder)


def _embedder(inputs: RunInputs, saved: Manifest | None) -> str:
    embedder = inputs.config.method.embedder if saved is None else saved.embedder or "none"
    if embedder == "minilm" and not inputs.benchmark.english:
        embedder += " (knows English alone; --embedder e5 knows the language of these texts)"
    return embedder


def _adapter(inputs: RunInputs, saved: Manifest | None) -> str:
    return inputs.config.method.adapter or (default_adapter(inputs) if saved is None else saved.adapter)
