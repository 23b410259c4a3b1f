"""`mempiler evaluate --check`: say what is in a data file, what is wrong with it, and its split."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import DataError, UserError
from ..runs.console import table
from .printing import print_result

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..data.check import Report
    from ..runs.inputs import RunInputs


def check_data_file(inputs: RunInputs) -> None:
    """Print what a check finds in the data file of a run, and end the process.

    The exit code is 0 if the file can be used, and 1 if not.

    Raises:
        UserError: The options name no file.
    """
    from ..data.check import check

    data = inputs.config.data
    if data.file is None:
        raise UserError(f"--check looks into a file of {data.benchmark}; give it with --data")
    report = check(data.benchmark, data.file, **data.benchmark_settings)
    result = report.model_dump()
    lines = list(_report_lines(report, data.file))

    if report.ok:
        split = _describe_split(inputs)
        result["split"] = split.summary
        lines.extend(split.lines)
    else:
        lines.append(f"{data.file}: cannot be used as it is; fix the lines marked ERROR")

    print_result(result, lines)
    sys.exit(0 if report.ok else 1)


class _SplitDescription(NamedTuple):
    """How the questions of a file are split into training, dev and test questions."""

    summary: dict[str, Any]
    """For `--json`."""
    lines: list[str]


def _describe_split(inputs: RunInputs) -> _SplitDescription:
    """Describe how the questions of a valid file are split, or why they cannot be."""
    from ..runs.split_plan import plan_split

    try:
        split = plan_split(inputs)
    except DataError as error:
        # The file has too few questions to be split. That is no fault of the file: `evaluate` can
        # still ask all of them.
        return _SplitDescription({"error": str(error)}, [f"split: {error}"])
    return _SplitDescription(split.summary(), split.lines())


def _report_lines(report: Report, path: str) -> Iterator[RenderableType]:
    """Yield the counts of a report, its findings, the languages, the metric and the advice."""
    counts = [(name, str(count)) for name, count in report.counts.items()]
    yield table((path, ""), counts)

    for finding in report.findings:
        mark = "ERROR: " if finding.fatal else ""
        yield f"{mark}{finding.where}: {finding.kind}: {finding.message}"

    if report.languages:
        languages = [f"{language} {count}" for language, count in report.languages.items()]
        yield f"languages of the questions: {', '.join(languages)}"

    if report.splitter_description:
        yield f"metric: {report.metric}; compares {report.splitter_description}"
    else:
        yield f"metric: {report.metric}"
    if report.advice:
        yield f"advice: {report.advice}"

    if report.findings:
        error_count = sum(finding.fatal for finding in report.findings)
        remark_count = len(report.findings) - error_count
        yield f"{error_count} errors, {remark_count} remarks"
    else:
        yield "nothing wrong found"
