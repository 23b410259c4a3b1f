"""Pieces of work in processes of their own, some at the same time; what they make is in files.

A process that fails, or is killed, is no error here: its file is missing, and who needs it does the work again and sees
why. The processes end with the one that started them, also if that is killed. DSPy logs there what it logs here, which
is nothing where a command shows progress.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any


def side_by_side(
    work: Callable[..., None],
    given: Sequence[tuple[Any, ...]],
    workers: int,
    told: Callable[[int, int], None] | None = None,
) -> None:
    """Does all pieces of work, so many at a time.

    Args:
        work: Does one piece; found by its name in the new process.
        given: The arguments of each piece.
        workers: Processes at the same time.
        told: Told how many of all have ended.
    """
    spawn, waiting = multiprocessing.get_context("spawn"), list(given)
    running: list[Any] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                process = spawn.Process(target=begin, args=(work, waiting.pop(0), dspy_level()), daemon=True)
                process.start()
                running.append(process)
            wait([process.sentinel for process in running])
            running = [process for process in running if process.is_alive()]
            if told:
                told(len(given) - len(waiting) - len(running), len(given))
    finally:
        for process in running:
            process.terminate()
            process.join()


def dspy_level() -> int:
    """From which level on DSPy logs in this process."""
    return logging.getLogger("dspy").level


def begin(work: Callable[..., None], given: tuple[Any, ...], level: int) -> None:
    """Does a piece of work in the process that was started for it; it ends with the process that started it.

    Args:
        work: Does it.
        given: Its arguments.
        level: From which on DSPy logs.
    """
    import dspy  # noqa: F401  # importing it sets the level

    logging.getLogger("dspy").setLevel(level)
    # Whoever stops the run stops the process that started this one, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    try:
        work(*given)
    except Exception:
        os._exit(1)


def _end_with(owner: Any) -> None:
    owner.join()
    os._exit(1)
