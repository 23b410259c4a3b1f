"""Run the command line: in this process, or in a process that is killed on the way."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

RunCommand = Callable[..., tuple[int, str, str]]
"""Words of a command -> its exit code, standard output and standard error."""


def run_cli(*words: object) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, standard output and standard error."""
    from mempiler.cli import main

    exit_code: Any = 0
    stdout = io.StringIO()
    stderr = io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main([str(word) for word in words])
        except SystemExit as error:
            exit_code = error.code
    return int(exit_code or 0), stdout.getvalue(), stderr.getvalue()


def output_of(run: RunCommand, *words: object) -> str:
    """Run a command that succeeds; return its standard output."""
    exit_code, out, err = run(*words)
    assert exit_code == 0, err
    return out


def json_of(run: RunCommand, *words: object) -> Any:
    """Run a command that succeeds; return what it prints with `--json`."""
    return json.loads(output_of(run, *words, "--json"))


@dataclass(frozen=True)
class CommandResult:
    """What a command returned and printed."""

    code: int
    """The exit code."""
    out: str
    """Standard output."""
    err: str
    """Standard error."""

    @property
    def printed_json(self) -> dict[str, Any]:
        """The object that `--json` printed."""
        return json.loads(self.out)

    @property
    def error_line(self) -> str:
        """The error message. It is the only one, and stands after progress and the data's line."""
        *progress, message = self.err.splitlines()
        assert message.startswith("mempiler: ")
        assert not any(line.startswith(("mempiler: ", "Traceback")) for line in progress)
        return message

    @property
    def resumable_run(self) -> str:
        """The run that can be resumed, as the error message names it."""
        runs = re.findall(r"--resume (\S+) goes on", self.error_line)
        return runs[-1]


class CommandLine:
    """Runs commands in this process, on a few questions of LoCoMo's sample, with a stub server."""

    def __call__(self, server: Any, *words: str, **sizes: int) -> CommandResult:
        """Run a command; `words` and `sizes` are those of `arguments`."""
        return CommandResult(*run_cli(*self.arguments(server, *words, **sizes)))

    @staticmethod
    def arguments(
        server: Any, *words: str, train: int = 8, dev: int = 4, test: int = 4, threads: int = 1
    ) -> list[str]:
        """Return the arguments of a command whose model is the stub server.

        Failed calls are not repeated, unless `words` say so.

        Args:
            server: The `StubServer`.
            *words: The command, the program, and further options.
            train: Number of questions.
            dev: Number of questions.
            test: Number of questions.
            threads: Questions that are asked at a time.
        """
        command_and_program = words[:2]
        options = words[2:]
        # A paper names its benchmarks itself.
        benchmark = [] if words[0] == "reproduce" else ["--benchmark", "locomo"]
        model = ["--lm", server.model, "--api-base", server.url, "--retries", "0"]
        sizes = ["--train", str(train), "--dev", str(dev), "--test", str(test)]
        return [
            *command_and_program,
            *benchmark,
            "--json",
            *model,
            *sizes,
            "--threads",
            str(threads),
            *options,
        ]


SLOW_IMPORTS = (
    "dspy",
    "nltk.stem",
    "sklearn.metrics",
    "mempiler.runs.evaluate",
)
"""Modules that take seconds to import. Commands are forked off a process that has them."""


RUN_SILENTLY = """
import os
from mempiler.cli import main

os.environ.update(environment)
nowhere = os.open(os.devnull, os.O_RDWR)
os.dup2(nowhere, 1)
os.dup2(nowhere, 2)
main(words)
"""
"""What a forked process does. It is source code, because that process cannot import the tests."""


class KilledCommands:
    """Runs a command in a process of its own, and kills it on the way.

    Args:
        cache_folder: The LM cache of the commands.
    """

    def __init__(self, cache_folder: Path) -> None:
        forkserver.set_forkserver_preload(list(SLOW_IMPORTS))
        # The server of forks hands its environment on.
        cache_before = os.environ["DSPY_CACHEDIR"]
        os.environ["DSPY_CACHEDIR"] = str(cache_folder)
        try:
            forkserver.ensure_running()
        finally:
            os.environ["DSPY_CACHEDIR"] = cache_before

    def start(self, words: list[str], home: Path, **environment: str) -> None:
        """Start a command.

        Args:
            words: The arguments of `mempiler`.
            home: A new folder for its results.
            **environment: Further variables of its environment.
        """
        home.mkdir()
        variables = {
            "words": words,
            "environment": {"MEMPILER_HOME": str(home), **environment},
        }
        context = multiprocessing.get_context("forkserver")
        self._home = home
        self._process = context.Process(target=exec, args=(RUN_SILENTLY, variables))
        self._process.start()

    def kill(self, server: Any, answers: int) -> str:
        """Kill the command when the server has given so many answers; return the run's folder."""
        assert server.wait(answers)
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL

        run_files = list(self._home.glob("*/run.json"))
        assert len(run_files) == 1
        assert json.loads(run_files[0].read_text())["status"] == "running"
        return str(run_files[0].parent)
