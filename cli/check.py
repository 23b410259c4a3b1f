"""`mempiler check`: tell a CI job whether a program is worse than the one in use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..runs.config import CONFIG_FIELDS, UNAVAILABLE_OPTIONS
from .config import FileOption
from .options import JSON, OVERWRITE, parse_run_options, run_options
from .printing import print_result
from .progress import quiet_output

if TYPE_CHECKING:
    from ..runs.check_result import Check
    from ..runs.evaluate import Part

_DEFAULT_BENCHMARK = "jsonl"
"""The benchmark that reads --data: most users check with a file of their own questions."""

_OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)


class _RepeatedModel(FileOption):
    """The option --lm, which may be repeated; a file names one model."""

    def consume_value(
        self, ctx: click.Context, opts: Any
    ) -> tuple[tuple[str, ...], ParameterSource]:
        """Return the models: those of the command line, or else that of the file."""
        return click.Option.consume_value(self, ctx, opts)

    def default_from_file(self, ctx: click.Context, value: Any) -> list[str]:
        """Check the model that a file names; return it in the form of a repeated option."""
        self._refuse_wrong_kind(value)
        return [value]


@click.command("check")
@click.argument("program")
@click.option(
    "--against",
    required=True,
    metavar="PROGRAM",
    help="the program in use, e.g. models:/memory@prod",
)
@click.option(
    "--lm",
    "lms",
    cls=_RepeatedModel,
    file_key="models.task.name",
    check=CONFIG_FIELDS["lm"].check,
    multiple=True,
    help="a model that PROGRAM is asked with; may be repeated [default: the model in use]",
)
@click.option(
    "--against-lm",
    help="the model in use, which the --against program is asked with"
    " [default: the one that it was compiled with, else the first --lm]",
)
@click.option(
    "--floor",
    "floor_pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="fixed minimum of a figure of PROGRAM, e.g. recall@20=.7 or score=.5; may be repeated",
)
@run_options(without=(*UNAVAILABLE_OPTIONS["check"], "benchmark", "lm"))
@click.option(
    "--benchmark",
    cls=FileOption,
    file_key="data.benchmark",
    default=_DEFAULT_BENCHMARK,
    help="the benchmark that asks; jsonl reads a file of your own questions",
)
@click.option(
    "--split",
    cls=FileOption,
    file_key="evaluation.split",
    type=click.Choice(["all", "train", "dev", "test"]),
    default="all",
    help="which questions: all, or the train, dev or test part that compile makes of them",
)
@click.option(
    "--markdown",
    "markdown_path",
    type=_OUTPUT_FILE,
    help="write a summary for the page of a CI job",
)
@click.option("--junit", "junit_path", type=_OUTPUT_FILE, help="write JUnit XML")
@OVERWRITE
@JSON
def command(
    program: str,
    against: str,
    lms: tuple[str, ...],
    against_lm: str | None,
    floor_pairs: tuple[str, ...],
    split: Part,
    markdown_path: Path | None,
    junit_path: Path | None,
    overwrite: bool,
    **values: Any,
) -> None:
    """Check PROGRAM against the one in use: end with code 1 if it is worse, or below a floor.

    Both are asked the questions of --data, as `evaluate` does it. Code 0 means that nothing worse
    was found; the last lines say which loss would have been detected. Code 1 means worse, below a
    floor, or too few questions (--min-n); the lines that begin with "failed:" say which. Other
    codes are errors.

    With several --lm, PROGRAM is asked with each, so that you see whether a cheaper model will do.
    """
    from ..runs import api
    from ..runs.check_files import JUNIT_MARK, MARKDOWN_MARK
    from ..runs.floors import parse_floors
    from ..runs.results_folder import refuse_foreign_file

    # Nothing is paid for if the result could not be written.
    floors = parse_floors(floor_pairs)
    if markdown_path is not None:
        refuse_foreign_file(markdown_path, MARKDOWN_MARK, force=overwrite)
    if junit_path is not None:
        refuse_foreign_file(junit_path, JUNIT_MARK, force=overwrite)

    metric: str | None = values["metric"]
    options = parse_run_options(values)
    with quiet_output():
        check = api.check(
            program,
            against=against,
            metric=metric,
            split=split,
            lms=lms,
            against_lm=against_lm,
            floors=floors,
            **options,
        )

    if markdown_path is not None:
        _write(markdown_path, check.to_markdown())
    if junit_path is not None:
        _write(junit_path, check.to_junit())
    print_result(check.to_dict(), check.lines())
    _end_with_code(check)


def _write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    from ..records.atomic_file import atomic_write

    with atomic_write(path) as file:
        file.write(text)


def _end_with_code(check: Check) -> None:
    """End the command with code 1 if the check failed; return if it passed.

    Raises:
        BrokenRunError: So much failed that there is no verdict. This is an error, not a failure.
    """
    from ..runs.results import refuse_broken

    for row in check.broken_rows:
        refuse_broken(row.evaluation, row.evaluation.run_id)
    if not check.passed:
        sys.exit(1)
