"""`mempiler ask`: ask a saved program a question about a history, or about a stored memory."""

from __future__ import annotations

from typing import Any

import click

from ..errors import UserError
from .options import JSON, STORE, TENANT, USER, asking_options, open_asked, open_store
from .printing import report


@click.command("ask")
@click.argument("program", type=click.Path())
@click.argument("question")
@click.option("--history", "file", type=click.Path(), help="JSON: a history or chat messages")
@STORE
@USER
@TENANT
@click.option("--why", is_flag=True, help="show the recalled items and the turns they come from")
@JSON
@asking_options
def command(program: str, question: str, file: str | None, why: bool, **given: Any) -> None:
    """Ask PROGRAM a QUESTION about the history in a file, or about a stored memory.

    PROGRAM is a saved program: its folder, or models:/NAME@ALIAS.
    """
    import dspy

    from ..engines.model_checks import endpoint_errors
    from ..records import History

    store, user, tenant = (given.pop(name) for name in ("store", "user", "tenant"))
    if (file is None) == (user is None):
        raise UserError("ask about one of: --history FILE, or --user NAME of a --store")
    history = History.load(file) if file is not None else None
    loaded, name, model = open_asked(program, given)
    if loaded.task.inputs != ("question",):
        raise UserError(f"{program}: its task {loaded.task.name} does not answer questions")
    with endpoint_errors(), dspy.context(lm=model, trace=None, disable_history=True):
        if history is not None:
            prediction, turns = loaded(history=history, question=question), history.turns
        else:
            with open_store(store) as opened:
                memory = loaded.memory(opened, user, tenant)
                if memory.status() is None:
                    raise UserError(f"no user {user!r} in {opened.url}; `mempiler memories list` shows all")
                prediction = memory.ask(question)
                turns = opened.items.turns(memory.owner, prediction.context.sources)
    hits = [
        {
            "id": hit.id,
            "text": hit.text,
            "score": round(hit.score, 4),
            "sources": [{"id": id, "line": turns[id][0].line(turns[id][1].time)} for id in hit.sources if id in turns],
        }
        for hit in prediction.context.hits
    ]
    lines = [str(prediction.answer)]
    lines += ["\nrecalled, best first, with the turns each rests on:"] if why else []
    for hit in hits if why else ():
        lines.append(f"  {hit['score']:.3f}  [{hit['id']}] {hit['text']}")
        lines += [f"         from {each['line']}" for each in hit["sources"] if each["id"] != hit["id"]]
    report({"answer": str(prediction.answer), "lm": name, "why": hits}, lines)
