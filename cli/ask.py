"""`mempiler ask`: ask a saved program a question about a history, or about a stored memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Unpack

import click

from ..errors import UserError
from .option_values import AskingOptions
from .options import JSON, STORE, TENANT, USER, asking_options, open_program_and_model, open_store
from .printing import print_result

if TYPE_CHECKING:
    from ..records import Hit, Item, Turn


@dataclass(frozen=True)
class _Source:
    """A turn that a recalled entry rests on."""

    id: str
    line: str
    """The turn as prompts show it."""


@dataclass(frozen=True)
class _RecalledEntry:
    """An entry of the memory that was recalled for the question."""

    id: str
    text: str
    score: float
    sources: tuple[_Source, ...]


@click.command("ask")
@click.argument("program", type=click.Path())
@click.argument("question")
@click.option(
    "--history", "history_file", type=click.Path(), help="JSON: a history or chat messages"
)
@STORE
@USER
@TENANT
@click.option("--why", is_flag=True, help="show the recalled items and the turns they come from")
@JSON
@asking_options
def command(
    program: str,
    question: str,
    history_file: str | None,
    store: str | None,
    user: str | None,
    tenant: str,
    why: bool,
    **options: Unpack[AskingOptions],
) -> None:
    """Ask PROGRAM a QUESTION about the history in a file, or about a stored memory.

    PROGRAM is a saved program: its folder, or models:/NAME@ALIAS.
    """
    import dspy

    from ..engines.model_checks import endpoint_errors
    from ..records import History

    if (history_file is None) == (user is None):
        raise UserError("ask about one of: --history FILE, or --user NAME of a --store")
    history = None if history_file is None else History.load(history_file)
    memory_program, lm_name, lm = open_program_and_model(program, options)
    task = memory_program.task
    if task.inputs != ("question",):
        raise UserError(f"{program}: its task {task.name} does not answer questions")

    with endpoint_errors(), dspy.context(lm=lm, trace=None, disable_history=True):
        if history is not None:
            prediction = memory_program(history=history, question=question)
            turns = history.turns
        else:
            assert user is not None
            with open_store(store) as opened_store:
                memory = memory_program.memory(opened_store, user, tenant)
                if memory.status() is None:
                    url = opened_store.url
                    raise UserError(
                        f"no user {user!r} in {url}; `mempiler memories list` shows all"
                    )
                prediction = memory.ask(question)
                turns = opened_store.items.turns(memory.owner, prediction.context.sources)

    answer = str(prediction.answer)
    entries = [_recalled_entry(hit, turns) for hit in prediction.context.hits]
    result = {"answer": answer, "lm": lm_name, "why": [asdict(entry) for entry in entries]}
    lines = [answer]
    if why:
        lines.extend(_recall_lines(entries))
    print_result(result, lines)


def _recalled_entry(hit: Hit, turns: Mapping[str, tuple[Turn, Item]]) -> _RecalledEntry:
    """Return a recalled entry with those of its turns that are known."""
    sources: list[_Source] = []
    for turn_id in hit.sources:
        if turn_id in turns:
            turn, item = turns[turn_id]
            sources.append(_Source(turn_id, turn.line(item.time)))
    return _RecalledEntry(hit.id, hit.text, round(hit.score, 4), tuple(sources))


def _recall_lines(entries: Sequence[_RecalledEntry]) -> Iterator[str]:
    """Yield recalled entries, each followed by the other turns that it rests on."""
    yield "\nrecalled, best first, with the turns each rests on:"
    for entry in entries:
        yield f"  {entry.score:.3f}  [{entry.id}] {entry.text}"
        for source in entry.sources:
            if source.id != entry.id:
                yield f"         from {source.line}"
