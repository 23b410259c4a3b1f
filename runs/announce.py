"""Say, before a run begins, on which data and models its numbers will rest.

data: locomo10.json (200 questions); LM: openai/gpt-4.1-mini; embedder: minilm; adapter: auto
"""

from __future__ import annotations

from ..engines.model_names import is_offline
from .config import RunConfig
from .console import Output
from .evaluate import Part, chosen_examples, resolve_part
from .inputs import RunInputs
from .manifest import Manifest, read_manifest
from .program_address import program_folder
from .role_models import default_adapter
from .split_plan import plan_split


def announce(inputs: RunInputs, program: object = None, part: Part | None = None) -> None:
    """Print on standard error which data and models a run uses, and notes on small parts.

    Args:
        inputs: What the run is started with.
        program: What is compiled or scored. A saved program has its own adapter and embedder.
        part: Which questions an evaluation asks; None for a run that needs all three parts.
    """
    data = f"{_describe_data(inputs)} ({_describe_questions(inputs, part)})"
    _print_data_and_models(data, inputs, _manifest_of(program))
    for note in _split_notes(inputs, part):
        Output(stderr=True).print(f"note: {note}")


def announce_models(inputs: RunInputs, data: str) -> None:
    """Print the line of a run over several data sets, whose questions are not counted."""
    _print_data_and_models(data, inputs, None)


def _print_data_and_models(data: str, inputs: RunInputs, manifest: Manifest | None) -> None:
    """Print one line on standard error: data, models, and whether the run is a smoke test.

    Args:
        data: The file of the data and the number of questions, as text.
        inputs: What the run is started with.
        manifest: The manifest of the saved program; None for any other program.
    """
    models = (
        f"LM: {_describe_lm(inputs.config)};"
        f" embedder: {_describe_embedder(inputs, manifest)};"
        f" adapter: {_adapter_name(inputs, manifest)}"
    )
    line = f"data: {data}; {models}"
    if _is_smoke_test(inputs):
        line += " - a smoke test, not comparable with published numbers"
    Output(stderr=True).print(line)


def _split_notes(inputs: RunInputs, part: Part | None) -> list[str]:
    """Return a note for each part of the split that is smaller than the user may expect.

    Args:
        inputs: What the run is started with.
        part: Which questions an evaluation asks. None for a compile or a training, which needs the
            parts train, dev and test.
    """
    if part is None:
        plan = plan_split(inputs)
        notes = plan.shortages()
        # The dev questions decide what such a run keeps, so too few of them are worth a note before
        # anything is paid for. An evaluation has nothing to decide.
        if not plan.dev.allows_verdict:
            notes.append(plan.dev.line())
        return notes

    asked_part = resolve_part(inputs, part)
    if asked_part == "all":
        # All questions of the file are asked, whatever their number, so none can be missing.
        return []
    return plan_split(inputs).shortages({asked_part})


def _is_smoke_test(inputs: RunInputs) -> bool:
    """Tell whether the run uses sample data, or an engine of rules in place of an LM."""
    has_own_data = inputs.config.data.file is not None or inputs.user_benchmark is not None
    return not has_own_data or is_offline(inputs.config.models.task.name)


def _describe_data(inputs: RunInputs) -> str:
    """Return the file of the data, or what stands in its place."""
    if inputs.config.data.file is not None:
        return inputs.config.data.file
    if inputs.user_benchmark is not None and not inputs.user_benchmark.source.sample:
        return inputs.user_benchmark.source.path
    return "generated" if inputs.benchmark.generated else "bundled sample"


def _describe_questions(inputs: RunInputs, part: Part | None) -> str:
    """Return how many questions are asked, e.g. "20 questions"."""
    if part is not None:
        return f"{len(chosen_examples(inputs, part))} questions"
    split = inputs.split()
    return f"{len(split.train)} train, {len(split.dev)} dev, {len(split.test)} test questions"


def _describe_lm(config: RunConfig) -> str:
    """Return the task LM, the LM that answers if it is another one, and the replayed run."""
    line = config.models.task.name
    if line == "offline":
        line = "offline engine (extractive, no language model)"
    if config.models.answer.name:
        line += f", answers by {config.models.answer.name}"
    if config.execution.replay:
        line += f", replayed from {config.execution.replay}"
    return line


def _manifest_of(program: object) -> Manifest | None:
    """Return the manifest of a saved program; None for any other program."""
    if not isinstance(program, str) or not program:
        return None
    folder = program_folder(program)
    return None if folder is None else read_manifest(folder)


def _describe_embedder(inputs: RunInputs, manifest: Manifest | None) -> str:
    """Return the embedder, with a warning if it does not know the language of the data."""
    embedder = inputs.config.method.embedder
    if manifest is not None:
        embedder = manifest.embedder or "none"
    if embedder == "minilm" and not inputs.benchmark.english:
        embedder += " (knows English alone; --embedder e5 knows the language of these texts)"
    return embedder


def _adapter_name(inputs: RunInputs, manifest: Manifest | None) -> str:
    """Return the adapter: the one that the user chose, or the program's."""
    adapter = inputs.config.method.adapter
    if adapter:
        return adapter
    return default_adapter(inputs) if manifest is None else manifest.adapter
