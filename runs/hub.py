"""Programs on the Hugging Face hub: `hf://OWNER/NAME@REVISION`, wherever a program folder goes.

    hf://ada/memory@main ── pinned ──> hf://ada/memory@<commit> ── resolve ──> runs/local/hub/ada--memory-<commit>/

A branch or tag is resolved to its commit once, when a run starts, and the commit is what is recorded. Of a repository
only the JSON files of the saved program are fetched, and checked like those of any folder; a
commit that is here already is not asked for again. Whoever may write to a repository may put another program there: pin
a commit.

`HF_TOKEN`, `HF_ENDPOINT` and `HF_HUB_OFFLINE` mean what they mean to `huggingface_hub`, which does the transfer.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import EndpointError, MempilerError, ProgramError, UserError, one_line
from .addresses import HUB
from .artifact import is_intact, read_states
from .home import home, make_folder
from .manifest import MANIFEST, STATE
from .registry import keep

_ADDRESS = re.compile(rf"{HUB}(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def pinned(name: str) -> str:
    """The address with the commit that its branch or tag names now; `main` where it names none.

    Raises:
        UserError: There is no such repository or revision.
        EndpointError: The hub cannot be reached.
    """
    repo, revision = _parts(name)
    return f"{HUB}{repo}@{_commit(name, repo, revision)}"


def resolve(name: str) -> Path:
    """Fetches the program of an address, unless its commit is here already, and checks it.

    Raises:
        UserError: There is no such repository or revision.
        EndpointError: The hub cannot be reached.
        ProgramError: It holds no program of Mempiler, or was altered.
    """
    repo, revision = _parts(name)
    commit = _commit(name, repo, revision)
    folder = home().absolute() / "hub" / f"{repo.replace('/', '--')}-{commit}"
    if not is_intact(folder):
        make_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            fetched = _downloaded(name, repo, commit, Path(scratch))
            read_states(fetched)
            keep(fetched, folder)
    return folder


def push(folder: str | Path, name: str, private: bool = False) -> str:
    """Puts a saved program on the hub, as one commit of a repository, which is made if it is new.

    Args:
        folder: The program's.
        name: `hf://OWNER/NAME`.
        private: Whether a new repository is private.

    Returns:
        The address with the commit.

    Raises:
        UserError: There is no token, or it may not write there.
        EndpointError: The hub cannot be reached.
        ProgramError: The folder was altered.
    """
    folder = Path(folder)
    repo, revision = _parts(name)
    if revision:
        raise UserError(f"{name}: a commit is made by pushing; leave out @{revision}")
    read_states(folder)
    with _told(name):
        from huggingface_hub import CommitOperationAdd, HfApi, get_token

        if not get_token():
            raise UserError(f"{name}: pushing needs a token of the hub; set HF_TOKEN, or run: hf auth login")
        hub = HfApi()
        hub.create_repo(repo, private=private, exist_ok=True)
        changes = [CommitOperationAdd(file, folder / file) for file in (MANIFEST, STATE)]
        done = hub.create_commit(repo, changes, commit_message="Push a program of Mempiler")
    return f"{HUB}{repo}@{done.oid}"


def _parts(name: str) -> tuple[str, str | None]:
    found = _ADDRESS.fullmatch(name)
    if found is None:
        raise UserError(f"{name}: is no program on the hub; write {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION")
    return found["repo"], found["revision"]


def _commit(name: str, repo: str, revision: str | None) -> str:
    if revision and _COMMIT.fullmatch(revision):
        return revision
    with _told(name):
        from huggingface_hub import HfApi

        commit = str(HfApi().model_info(repo, revision=revision).sha)
    if not _COMMIT.fullmatch(commit):
        raise EndpointError(f"{name}: the hub names no commit for it")
    return commit


def _downloaded(name: str, repo: str, commit: str, scratch: Path) -> Path:
    with _told(name):
        from huggingface_hub import HfApi

        hub = HfApi()
        if not {MANIFEST, STATE} <= _files(hub, repo, commit):
            raise ProgramError(f"{name}: no saved program there ({MANIFEST} and {STATE} are not in its top folder)")
        for file in (MANIFEST, STATE):
            hub.hf_hub_download(repo, file, revision=commit, local_dir=scratch / "loaded")
    fetched = scratch / "program"
    fetched.mkdir()
    for file in (MANIFEST, STATE):
        (scratch / "loaded" / file).rename(fetched / file)
    return fetched


def _files(hub: Any, repo: str, revision: str | None = None) -> set[str]:
    return {file.rfilename for file in hub.model_info(repo, revision=revision).siblings or ()}


@contextmanager
def _told(name: str) -> Generator[None]:
    """Turns errors of the hub into ours, in one line.

    Raises:
        UserError: There is no such repository or revision, or the token may not do this.
        EndpointError: The hub cannot be reached.
    """
    from huggingface_hub import errors as hub

    try:
        yield
    except hub.RevisionNotFoundError as error:
        raise UserError(f"{name}: the repository has no such revision") from error
    except hub.RepositoryNotFoundError as error:
        private = "or it is private: set HF_TOKEN, or run: hf auth login"
        raise UserError(f"{name}: there is no such repository on the hub, {private}") from error
    except hub.HFValidationError as error:
        raise UserError(
            f"{name}: is no name of a repository: {one_line(error, 200) or type(error).__name__}"
        ) from error
    except hub.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            raise UserError(f"{name}: the hub refuses the token (status {status}); set another HF_TOKEN") from error
        raise EndpointError(f"{name}: the hub fails: {one_line(error, 200) or type(error).__name__}") from error
    except MempilerError:
        raise
    except Exception as error:  # the libraries below raise errors of many kinds, none of which is for users
        raise EndpointError(
            f"{name}: the hub cannot be reached: {one_line(error, 200) or type(error).__name__}"
        ) from error
