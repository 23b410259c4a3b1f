"""The command line: `mempiler COMMAND`. One file per command; each is imported when it is called.

A user's mistake is one line on standard error and exit code 2; results go to standard output,
progress to standard error, and `--json` makes the result one JSON object.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import click

from .. import __version__
from ..errors import MempilerError, RunInterrupted, UserError
from .config import add_env_vars

COMMANDS = {
    "demo": "The main job on the bundled sample: compile, score, track, save, load, ask.",
    "compile": "Tune a method's prompts against a benchmark and save the program.",
    "evaluate": "Score a method, a saved program or another system; check a data file or a judge.",
    "choose": "Find out which of several methods suits your data best, with few calls.",
    "compare": "Tell whether runs differ, question by question, in a table or on a page.",
    "check": "Tell a CI job whether a program is worse than the one in use, or below a floor.",
    "show": "Show a run: scores, which questions it got wrong and why, one with its prompt.",
    "train": "Train a local model on a method's memory operations by LoGo-GRPO.",
    "reproduce": "Run a paper's variants; print ours beside its tables.",
    "synthesize": "Write a data set with a language model: PAL-Set, or MemoryQuest.",
    "ask": "Ask a saved program a question about a history, or about a stored memory.",
    "memories": "Stored memories: add, list, search, show, edit, export, import, rebuild, forget.",
    "questions": "What users said about answers, as questions to compile a program from.",
    "serve": "Serve a saved program and its memories over HTTP, with an OpenAI-compatible chat.",
    "mcp": "Give an agent a stored memory as tools of the Model Context Protocol.",
    "list": "Methods, benchmarks, optimizers, adapters, embedders, weights, systems.",
    "fetch": "Bring weights, a benchmark's genuine file, or somebody else's memory system.",
    "publish": "Put a saved program into MLflow's model registry, or on the Hugging Face hub.",
    "improve": "Compile a registered program on new questions of its users; for cron.",
    "export": "A benchmark and a method as an environment for trainers that run elsewhere.",
    "ui": "Open the MLflow pages of all runs.",
}

REPEAT_INTERRUPT_AFTER = 5.0
"""Seconds after which a process that goes on although it was interrupted is interrupted again."""
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
"""What the system reports of a disk that takes no more."""
_EXIT_INTERRUPTED = 130
"""The exit status of a command that was stopped, as shells have it."""
_GC_THRESHOLDS = (10_000, 20, 50)
"""How rarely Python looks for garbage; see `gc.set_threshold`.

Modules that are imported stay in memory, so looking through them as often as by default finds
nothing, and takes an eighth of the time that a command needs to start.
"""


class _Invocation(NamedTuple):
    """A call of the command line. Commands find it as `obj` of click's context."""

    arguments: Sequence[str]
    """The words of the command."""
    is_own_process: bool
    """Whether the process runs nothing but this command, so that the command may end it.

    Otherwise Python code, such as a test, called `main`.
    """


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that `--help` starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = "list_" if cmd_name == "list" else cmd_name
        command = importlib.import_module(f".{module}", __name__).command
        add_env_vars(command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. If it is interrupted, say how to go on, and end it.

        click itself would print an empty line for a KeyboardInterrupt, and drop its message.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            invocation: _Invocation = ctx.obj
            _exit_interrupted(stop, invocation)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="mempiler")
def app() -> None:
    """Long-term memory methods for LLM agents, as DSPy programs you can compile, track and load."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command, and end with its exit code. An error of a user is printed as one line.

    Args:
        arguments: The words of the command. None stands for the words of the process, which then
            runs this command alone. Such a process is ended at once when it is interrupted.
    """
    # DSPy's optimizers draw bars of their own beside ours; tqdm reads this when it is imported.
    os.environ.setdefault("TQDM_DISABLE", "1")
    words = sys.argv[1:] if arguments is None else arguments
    invocation = _Invocation(words, is_own_process=arguments is None)
    if invocation.is_own_process:
        gc.set_threshold(*_GC_THRESHOLDS)
        end_by_signal()

    try:
        _refuse_undecodable(words)
        app.main(args=words, prog_name="mempiler", standalone_mode=False, obj=invocation)
    except click.exceptions.NoArgsIsHelpError as help_page:
        # `mempiler` and `mempiler memories` alone print their help.
        click.echo(help_page.format_message())
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        # The words are no valid command.
        _fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt) as stop:
        _exit_interrupted(stop, invocation)
    except MempilerError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has read enough.
        _silence_output()
        sys.exit(0)
    except OSError as error:
        _fail_for_os_error(error, invocation.is_own_process)


def _fail_for_os_error(error: OSError, is_own_process: bool) -> NoReturn:
    """End the command with one line, if a file name is too long or a disk takes no more.

    Args:
        error: What the system reported.
        is_own_process: See `_Invocation`.

    Raises:
        OSError: The error is another one, which is a mistake of Mempiler's. It is raised again.
    """
    if error.errno == errno.ENAMETOOLONG:
        beginning = str(error.filename)[:40]
        _fail(f"no file or run can have the name {beginning!r}...: it is too long", 2)
    if error.errno not in _DISK_ERRORS:
        raise error

    if is_own_process:
        # What is not printed yet may be what the disk did not take.
        _silence_output()
    place = error.filename or "what was to be printed"
    advice = "free space on that disk, or write elsewhere"
    _fail(f"{place}: cannot be written: {error.strerror}; {advice}", 4)


def _silence_output() -> None:
    """Discard further output: Python would complain of it again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_undecodable(arguments: list[str]) -> None:
    """Refuse arguments that no file, log or model could hold: bytes that are not UTF-8."""
    for argument in arguments:
        # Python keeps a byte that it cannot decode as half of a surrogate pair, which UTF-8 cannot
        # encode. Here such a half is replaced by a backslash and its number.
        shown = argument.encode("utf-8", "backslashreplace").decode()
        if shown != argument:
            raise UserError(
                f"the argument {shown[:100]!r} is no UTF-8 text;"
                " rename the file, or set a UTF-8 locale"
            )


def _exit_interrupted(stop: BaseException, invocation: _Invocation) -> NoReturn:
    """Print how an interrupted command can be continued, and end it with an exit code.

    Args:
        stop: The exception of the interruption, e.g. a `KeyboardInterrupt`.
        invocation: The command that was interrupted.
    """
    click.echo(f"mempiler: {stop_line(stop, invocation.arguments)}", err=True)
    if invocation.is_own_process:
        # Threads may still wait for answers of models, perhaps for minutes. `sys.exit` would wait
        # for these threads; `os._exit` does not. It does not flush the output either.
        sys.stdout.flush()
        os._exit(_EXIT_INTERRUPTED)
    # Python code called `main`. It can catch this exit, and goes on running.
    sys.exit(_EXIT_INTERRUPTED)


def _fail(message: str, code: int) -> NoReturn:
    """Print a line on standard error, and end with an exit code."""
    click.echo(f"mempiler: {MempilerError(message)}", err=True)
    sys.exit(code)


def stop_line(stop: BaseException, arguments: Sequence[str]) -> str:
    """Return one line for whoever stopped a command: what is kept, and how to go on.

    Args:
        stop: What stopped the command.
        arguments: The words of the command.
    """
    if isinstance(stop, RunInterrupted):
        command = "the same command"
        if stop.resume:
            command = f"the same command with {' '.join(stop.resume)}"
        return f"stopped; {stop.kept}; {command} goes on"

    # A rebuild is no run with a folder, but it can go on too: the store knows what is written.
    if tuple(arguments[:2]) == ("memories", "rebuild"):
        kept = "users and sessions that were written are kept, the others stay queued"
        return f"stopped; {kept}; the same command without --force goes on"
    return "stopped"


def end_by_signal() -> None:
    """Let SIGTERM end a command as Ctrl-C does; the service has handlers of its own."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _: Any) -> None:
    """Raise a KeyboardInterrupt, and send the signal again if the process goes on."""
    # An interrupt that comes while Python cleans up an object is printed and lost.
    repetition = threading.Timer(REPEAT_INTERRUPT_AFTER, os.kill, (os.getpid(), number))
    repetition.daemon = True
    repetition.start()
    raise KeyboardInterrupt
