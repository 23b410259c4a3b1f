"""`recollect ask`: ask a saved program a question about a history."""

from __future__ import annotations

from typing import Any

import click

from .options import ALLOW_CODE, API_BASE, JSON, output, print_json


@click.command("ask")
@click.argument("program", type=click.Path())
@click.argument("question")
@click.option("--history", "history_file", required=True, type=click.Path(), help="JSON: a history or chat messages")
@click.option("--lm", help="the model that answers [default: the one the program was compiled with]")
@API_BASE
@click.option("--why", is_flag=True, help="show the recalled items and the turns they come from")
@JSON
@ALLOW_CODE
def command(
    program: str,
    question: str,
    history_file: str,
    lm: str | None,
    api_base: str | None,
    why: bool,
    as_json: bool,
    allow_code: bool,
) -> None:
    """Ask PROGRAM (the folder of a saved program) a QUESTION about the history in a file."""
    import dspy

    from ..engines.models import endpoint_errors, language_model
    from ..errors import UserError
    from ..records import History
    from ..runs.artifact import load, read_manifest

    history = History.load(history_file)
    loaded = load(program, allow_code)
    if loaded.task.inputs != ("question",):
        raise UserError(f"{program}: its task {loaded.task.name} does not answer questions")
    name = lm or read_manifest(program).lms.get("task", "offline")
    model = language_model(name, api_base=api_base)
    with endpoint_errors(), dspy.context(lm=model, trace=None, disable_history=True):
        prediction = loaded(history=history, question=question)
    found = _answer(prediction, history, name)
    if as_json:
        print_json(found)
        return
    console = output()
    console.print(found["answer"], soft_wrap=True)
    if why:
        _explain(console, found["why"])


def _answer(prediction: Any, history: Any, lm: str) -> dict[str, Any]:
    hits = [
        {
            "id": hit.id,
            "text": hit.text,
            "score": round(hit.score, 4),
            "sources": [
                {"id": id, "line": history.turns[id][0].line(history.turns[id][1].time)}
                for id in hit.sources
                if id in history.turns
            ],
        }
        for hit in prediction.context.hits
    ]
    return {"answer": str(prediction.answer), "lm": lm, "why": hits}


def _explain(console: Any, hits: list[dict[str, Any]]) -> None:
    console.print("\nrecalled, best first, with the turns each rests on:")
    for hit in hits:
        console.print(f"  {hit['score']:.3f}  [{hit['id']}] {hit['text']}", soft_wrap=True)
        for source in hit["sources"]:
            if source["id"] != hit["id"]:
                console.print(f"         from {source['line']}", soft_wrap=True)
