"""`mempiler improve`: compile a registered program on new questions of its users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..runs.config import UNAVAILABLE_OPTIONS
from ..runs.setting_pairs import parse_settings
from .options import JSON, parse_run_options, run_options
from .printing import print_result
from .progress import quiet_output

if TYPE_CHECKING:
    from ..programs.staging import Stage


@click.command("improve")
@click.argument("address")
@click.option("--store", metavar="URL", help="the store whose feedback becomes questions")
@click.option("--tenant", help="only questions of this tenant of the store [default: all]")
@run_options(without=UNAVAILABLE_OPTIONS["improve"])
@click.option("--optimizer", default="gepa", help="see `mempiler list optimizers`")
@click.option(
    "--stage",
    type=click.Choice(["read", "write", "all"]),
    default="all",
    hidden=True,
    help="which prompts are tuned: those that read memories, those that write them, or all",
)
@click.option(
    "--optimizer-set", multiple=True, metavar="NAME=VALUE", help="a setting of the optimizer"
)
@click.option(
    "--max-prompt-growth",
    type=click.FloatRange(1),
    metavar="X",
    hidden=True,
    help="refuse candidates whose prompts are more than X times as long as those of the start",
)
@click.option(
    "--min-users",
    type=click.IntRange(1),
    default=6,
    help="how many users must ask the questions that decide; with fewer than 6 the result applies"
    " only to these users",
)
@click.option(
    "--allow-user-text",
    is_flag=True,
    help="register a program even if its prompts contain text of users",
)
@JSON
def command(
    address: str,
    store: str | None,
    tenant: str | None,
    metric: str | None,
    optimizer: str,
    stage: Stage,
    optimizer_set: tuple[str, ...],
    max_prompt_growth: float | None,
    min_users: int,
    allow_user_text: bool,
    **values: Any,
) -> None:
    """Improve the program at ADDRESS, models:/NAME@ALIAS, on new questions of its users.

    The questions come from the feedback in --store, or from a file of questions (--data). The
    questions of half of the users are held out: they decide. The optimizer learns from the others.
    A round decides only on questions that no earlier round decided on. If the new program is
    significantly better, it becomes a new version, and ALIAS is moved to it. The exit code is 0 in
    both cases.
    """
    from ..runs import api

    with quiet_output():
        improvement = api.improve(
            address,
            store=store,
            tenant=tenant,
            metric=metric,
            optimizer=optimizer,
            optimizer_set=parse_settings(optimizer_set),
            stage=stage,
            max_prompt_growth=max_prompt_growth,
            min_users=min_users,
            allow_user_text=allow_user_text,
            **parse_run_options(values),
        )
    print_result(improvement.to_dict(), [str(improvement)])
