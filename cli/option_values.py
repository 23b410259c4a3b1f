"""Types of the values that commands receive from options they share."""

from __future__ import annotations

from typing import TypedDict


class ReadingOptions(TypedDict):
    """Values of `options.reading_options`, by which a saved program is loaded."""

    embedder: str | None
    embedder_api_base: str | None
    reranker: str | None
    allow_code: bool


class AskingOptions(ReadingOptions):
    """Values of `options.asking_options`, which `open_program_and_model` takes."""

    lm: str | None
    api_base: str | None
    lm_set: tuple[str, ...]
