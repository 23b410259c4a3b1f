"""The embedder of a saved program.

A saved program searches with the embedder it was made with. One that runs in this process is made
by its name. One behind an endpoint is used only if the user names it or gives its address, because
the texts of a memory are sent to it.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ..engines.embedders import IN_PROCESS, NO_RERANKER, TextEmbedder
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..engines.embedders import embedder as make_embedder
from ..engines.rerankers import TOKENS
from ..errors import ProgramError
from ..memory.search.embedder import Embedder
from ..programs.catalog import needs_embedder
from ..programs.external.target import takes_embedder
from .external import SYSTEM_PREFIX, resolve_external
from .manifest import Manifest, read_manifest


def choose_embedder(
    folder: str | Path,
    embedder: str | None = None,
    embedder_api_base: str | None = None,
    reranker: str | None = None,
) -> TextEmbedder | None:
    """Return the embedder of a saved program, if the user allows to use it.

    The texts of a memory are sent to an embedder behind an endpoint. So a program cannot choose one
    by itself: the user must name it, or give its address.

    Args:
        folder: The folder of the program.
        embedder: The name of an embedder that the user allows.
        embedder_api_base: Address of an OpenAI-compatible server, which is asked for the program's
            embedder by its name.
        reranker: What ranks search results again: "none", "tokens" or "fastembed:NAME". None takes
            the program's own.

    Returns:
        The embedder; None if the program names none, or one that the user did not allow. In the
        second case `embedder_for` refuses to load the program.
    """
    manifest = read_manifest(folder)
    name = manifest.embedder
    if name is None:
        return None

    # An embedder in this process sends no text anywhere, so it needs no permission.
    if name in IN_PROCESS:
        if reranker:
            return make_embedder(name, None, reranker)
        return local_embedder(Path(folder), manifest)

    is_allowed_by_user = name == embedder or bool(embedder_api_base)
    if not is_allowed_by_user:
        return None
    return make_embedder(name, embedder_api_base, reranker)


def embedder_for(folder: Path, manifest: Manifest, embedder: Embedder | None) -> Embedder | None:
    """Return the embedder with which a program is built; None if it needs none.

    Args:
        folder: The folder of the program, for messages.
        manifest: Its manifest.
        embedder: The one that the caller gives; None makes one that runs in this process.

    Raises:
        ProgramError: The program was made with another embedder, or with one behind an endpoint
            that the caller does not give.
    """
    system = external_system(manifest)
    is_needed = needs_embedder(manifest.method) if system is None else takes_embedder(system)
    if not is_needed:
        return None

    name = manifest.embedder or OFFLINE_EMBEDDER
    if embedder is not None:
        if embedder.name != name:
            problem = f"was made with the embedder {name!r}, not {embedder.name!r}"
            raise ProgramError(f"{folder}: {problem}")
        return embedder
    if name not in IN_PROCESS:
        raise ProgramError(
            f"{folder}: was made with the embedder {name!r}; "
            f"give --embedder {shlex.quote(name)} (embedder=... in Python)"
            " if texts may be sent to it"
        )
    return local_embedder(folder, manifest)


def local_embedder(folder: Path, manifest: Manifest) -> TextEmbedder:
    """Make a program's embedder, which runs in this process, with the program's reranker.

    Raises:
        ProgramError: The reranker is a model of fastembed. Such a model may have to be downloaded,
            so it is used only if the user names it, as `choose_embedder` lets him.
    """
    reranker = manifest.reranker or NO_RERANKER
    if reranker not in (NO_RERANKER, TOKENS):
        raise ProgramError(
            f"{folder}: was made with --reranker {reranker}; give --reranker {reranker} if this"
            " model may be loaded"
        )
    name = manifest.embedder or OFFLINE_EMBEDDER
    return make_embedder(name, None, reranker)


def external_system(manifest: Manifest) -> Any | None:
    """Return the external memory system that a program is around; None if it has a method."""
    if not manifest.method.startswith(SYSTEM_PREFIX):
        return None
    return resolve_external(manifest.method)
