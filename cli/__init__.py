"""The command line: `mempiler COMMAND`. One file per command; each is imported when it is called.

A user's mistake is one line on standard error and exit code 2; results go to standard output, progress to standard
error, and `--json` makes the result one JSON object.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from .. import __version__
from ..errors import MempilerError

COMMANDS = {
    "demo": "The main job on the bundled sample: compile, score, track, save, load, ask.",
    "compile": "Tune a method's prompts against a benchmark and save the program.",
    "train": "Train a local model on a method's memory operations by LoGo-GRPO.",
    "evaluate": "Score a method or a saved program on a benchmark.",
    "compare": "Tell whether runs or programs differ, question by question.",
    "diff": "Show what differs between two saved programs.",
    "failures": "List the questions and writes of a run that failed.",
    "register": "Put a saved program into MLflow's model registry, behind a gate.",
    "keys": "Make a key pair, and sign saved programs with it.",
    "ask": "Ask a saved program a question about a history, or about a stored memory.",
    "memories": "Stored memories: add, remember, list, show, export, import, forget.",
    "rebuild": "Write stored memories anew after a program or embedder changed.",
    "serve": "Serve a saved program and its memories over HTTP, with an OpenAI-compatible chat.",
    "reproduce": "Run a paper's variants; print its tables and ours, apart.",
    "list": "Methods, benchmarks, optimizers, adapters.",
    "data": "Look into data files.",
    "models": "Weights of small language models: list, fetch, check.",
    "judge": "How lenient a judge is, and how far it agrees with people.",
    "ui": "Open the MLflow pages of all runs.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that `--help` starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The command names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = "list_" if cmd_name == "list" else cmd_name
        return importlib.import_module(f".{module}", __name__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands with their summaries, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mempiler")
def app() -> None:
    """Long-term memory methods for LLM agents, as DSPy programs you can compile, track and load."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; turns errors of the tree into one line and their exit code."""
    # DSPy's optimizers draw bars of their own beside ours; tqdm reads this when it is imported.
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        app.main(args=arguments, prog_name="mempiler", standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except click.Abort:
        _fail("stopped", 130)
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except MempilerError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader closed the pipe; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _fail(message: str, code: int) -> Any:
    click.echo(f"mempiler: {' '.join(message.split())}", err=True)
    sys.exit(code)
