"""`mempiler synthesize`: write a data set with a language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..errors import BrokenRunError
from ..runs.config import CONFIG_FIELDS
from ..runs.console import table
from ..runs.setting_pairs import parse_settings
from .config import FileOption
from .options import JSON, Decorator, adds, run_options
from .printing import print_result
from .progress import quiet_output

if TYPE_CHECKING:
    from ..data.synthesis.palset.texts import LanguageCode
    from ..optimizers.call_bounds import Range
    from ..runs.console import WideTable
    from ..runs.synthesis import SynthesisOptions, SynthesisResult

_SHARED_OPTIONS = {
    "api_base",
    "lm_set",
    "adapter",
    "max_usd",
    "max_calls",
    "max_tokens",
    "max_minutes",
    "timeout",
    "retries",
    "lm_deadline",
}
"""Options that are those of a run."""
_OUTCOMES = ("accepted", "retried", "given up", "left out", "kept")
"""The columns of the table of steps."""


def _attempts(default: int) -> Decorator:
    """Return the option `--attempts` with a default."""
    return click.option(
        "--attempts",
        type=click.IntRange(1),
        default=default,
        help="how often a step is asked before it is given up",
    )


_OUT = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="folder for the data; one of the same data set goes on where it was stopped; not needed "
    "for --plan",
)
_LM = click.option(
    "--lm",
    cls=FileOption,
    file_key="models.task.name",
    check=CONFIG_FIELDS["lm"].check,
    help="the model that writes: `gguf:NAME`, or any model name DSPy takes",
)
_PLAN = click.option(
    "--plan", "planned", is_flag=True, help="print how many calls it takes, and spend nothing"
)
_THREADS = click.option(
    "--threads",
    cls=FileOption,
    file_key="execution.threads",
    check=CONFIG_FIELDS["threads"].check,
    type=click.IntRange(1),
    default=8,
    help="calls in flight",
)
_SEED = click.option(
    "--seed",
    cls=FileOption,
    file_key="data.seed",
    check=CONFIG_FIELDS["seed"].check,
    type=int,
    default=0,
    help="seed of everything that is drawn",
)
_shared_options = adds(
    _LM, run_options(without=CONFIG_FIELDS.keys() - _SHARED_OPTIONS), _THREADS, _PLAN, JSON
)


@click.group("synthesize")
def command() -> None:
    """Write a data set with a language model: PAL-Set, or MemoryQuest.

    Every answer is checked by code and asked for again with what was wrong. Answers are kept in the
    folder of --out, so a command that was stopped pays only for what is missing when it is given
    again.
    """


@command.command("palset")
@_OUT
@click.option("--users", type=click.IntRange(1), default=1, help="how many users")
# The range is that of `synthesize_palset`, whose module takes seconds to load.
@click.option("--months", type=click.IntRange(2), help="months of every user [default: 7 to 12]")
@click.option(
    "--language", type=click.Choice(["en", "zh"]), default="en", help="language of the data"
)
@click.option(
    "--reviews",
    type=click.IntRange(0),
    default=1,
    help="how often finished logs and dialogues are reviewed and corrected",
)
@_attempts(10)
@_SEED
@_shared_options
def palset(
    out: Path | None,
    users: int,
    months: int | None,
    language: LanguageCode,
    reviews: int,
    attempts: int,
    planned: bool,
    **values: Any,
) -> None:
    """Write a PAL-Set: users with months of device logs, and of dialogues about what they need.

    `mempiler evaluate --benchmark palbench.restate` reads the data: give it the file input_en.json
    of the folder, or input.json if the data are Chinese, with --data. With one review it takes
    about 45 calls a user and month; --plan prints the bounds.
    """
    # Imported here: DSPy takes seconds to load, which other commands and --help need not wait for.
    from ..runs.synthesis import synthesize_palset
    from ..runs.synthesis_plan import plan_palset

    if planned:
        # `--plan`: nothing is written.
        _print_calls(plan_palset(users, months, reviews))
        return
    with quiet_output():
        result = synthesize_palset(
            _required_folder(out),
            users=users,
            months=months,
            language=language,
            attempts=attempts,
            reviews=reviews,
            **_take_options(values),
        )
    _print_synthesis(result)


@command.command("memoryquest")
@click.argument("profiles", type=click.Path(path_type=Path))
@_OUT
@click.option("--users", type=click.IntRange(1), help="how many profiles [default: all]")
@click.option(
    "--embedder",
    default="minilm",
    help="measures how near requests are to their references; not the offline one",
)
@click.option("--embedder-api-base", help="address of an OpenAI-compatible embedding server")
@_attempts(3)
@_shared_options
def memoryquest(
    profiles: Path,
    out: Path | None,
    users: int | None,
    embedder: str,
    embedder_api_base: str | None,
    attempts: int,
    planned: bool,
    **values: Any,
) -> None:
    """Write MemoryQuest from PROFILES, the folder with PersonaLens's files *profile.json.

    PersonaLens is CC BY-NC 4.0: what is made from its profiles is not for commercial use. It takes
    at most 168 calls a user; --plan prints them by step.
    """
    # Imported here: DSPy takes seconds to load, which other commands and --help need not wait for.
    from ..data.synthesis.memoryquest.profiles import read_profiles
    from ..runs.synthesis import synthesize_memoryquest
    from ..runs.synthesis_plan import plan_memoryquest

    if planned:
        # `--plan`: nothing is written.
        num_profiles = len(read_profiles(profiles)[:users])
        _print_calls(plan_memoryquest(num_profiles))
        return
    with quiet_output():
        result = synthesize_memoryquest(
            profiles,
            _required_folder(out),
            users=users,
            attempts=attempts,
            embedder=embedder,
            embedder_api_base=embedder_api_base,
            **_take_options(values),
        )
    _print_synthesis(result)


def _required_folder(out: Path | None) -> Path:
    """Return the folder of `--out`, which only a plan does without.

    Raises:
        MissingParameter: There is none.
    """
    if out is None:
        raise click.MissingParameter(param_hint="'--out'", param_type="option")
    return out


def _take_options(values: dict[str, Any]) -> SynthesisOptions:
    """Return the options that both commands share, as the functions take them."""
    options = {**values, "lm_set": parse_settings(values["lm_set"])}
    return cast("SynthesisOptions", options)


def _print_calls(plan: dict[str, Range]) -> None:
    """Print the calls that a data set takes, by step and in all."""
    rows: list[tuple[str, str, str]] = []
    steps: dict[str, dict[str, float]] = {}
    low = 0.0
    high = 0.0
    for step, calls in plan.items():
        rows.append((step, f"{calls.low:,.0f}", f"{calls.high:,.0f}"))
        steps[step] = {"low": calls.low, "high": calls.high}
        low += calls.low
        high += calls.high
    rows.append(("calls", f"{low:,.0f}", f"{high:,.0f}"))

    title = "planned LM calls, without second attempts"
    lines = [table(("step", "low", "high"), rows, title, ruled_row=len(plan))]
    print_result({"calls": {"low": low, "high": high}, "phases": steps}, lines)


def _print_synthesis(result: SynthesisResult) -> None:
    """Print what was written, and what was accepted and refused by step.

    Raises:
        BrokenRunError: Nothing was written, though no limit stopped it.
    """
    lines: list[Any] = [_steps_table(result)]
    if result.files:
        lines.append(f"{len(result.files)} files in {result.out}, first {result.files[0].name}")
    if result.stopped:
        advice = f"the same command with a higher limit goes on from {result.out}"
        lines.append(f"stopped by a limit: {result.stopped}; {advice}")
    print_result(result.to_dict(), lines)

    if not result.files and not result.stopped:
        raise BrokenRunError(
            f"no user came through all steps; {result.out / 'synthesis.json'} says what was "
            "refused, and --attempts has it asked more often"
        )


def _steps_table(result: SynthesisResult) -> WideTable:
    """Return a table of what was accepted and refused, by step."""
    rows: list[tuple[str, ...]] = []
    for step, counts in result.outcomes().items():
        cells = [str(counts[outcome]) if outcome in counts else "" for outcome in _OUTCOMES]
        rows.append((step, *cells))
    return table(("step", *_OUTCOMES), rows)
