"""Programs on the Hugging Face hub: addresses like `hf://OWNER/NAME@REVISION`, and their files."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import EndpointError, MempilerError, UserError
from ..text import one_line
from .manifest import MANIFEST, STATE, check_states, is_intact
from .results_folder import create_folder, results_folder

HUB_PREFIX = "hf://"

_ADDRESS = re.compile(rf"{HUB_PREFIX}(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubAddress:
    """The parts of an address of the hub."""

    text: str
    """The address itself."""
    repository: str
    """The owner and the name of the repository, with a slash between."""
    revision: str | None
    """A branch, tag or commit; None for the main branch."""

    @classmethod
    def parse(cls, address: str) -> HubAddress:
        """Return the parts of an address.

        Raises:
            UserError: It is no address of the hub.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None:
            forms = f"{HUB_PREFIX}OWNER/NAME or {HUB_PREFIX}OWNER/NAME@REVISION"
            raise UserError(f"{address}: is no program on the hub; write {forms}")
        return cls(address, match["repo"], match["revision"])

    def find_commit(self) -> str:
        """Return the commit of the address; ask the hub unless the address names it.

        Raises:
            UserError: There is no such repository or revision.
            EndpointError: The hub cannot be reached.
        """
        if self.revision and _COMMIT.fullmatch(self.revision):
            return self.revision
        with hub_errors(self.text):
            from huggingface_hub import HfApi

            commit = str(HfApi().model_info(self.repository, revision=self.revision).sha)
        if not _COMMIT.fullmatch(commit):
            raise EndpointError(f"{self.text}: the hub names no commit for it")
        return commit


def pin_to_commit(address: str) -> str:
    """Return the address of the commit that an address of the hub names now."""
    hub_address = HubAddress.parse(address)
    return f"{HUB_PREFIX}{hub_address.repository}@{hub_address.find_commit()}"


def fetch_from_hub(address: str) -> Path:
    """Return the folder of the program of an address; download it unless it is here.

    Raises:
        UserError: There is no such program.
        EndpointError: The hub cannot be reached.
        ProgramError: It is no program of Mempiler, or was altered.
    """
    hub_address = HubAddress.parse(address)
    repository = hub_address.repository
    commit = hub_address.find_commit()
    name = f"{repository.replace('/', '--')}-{commit}"
    folder = results_folder().absolute() / "hub" / name
    if is_intact(folder):
        return folder

    create_folder(folder.parent)
    with hub_errors(address):
        from huggingface_hub import hf_hub_download

        # There may be files already, but the folder is not intact: they are incomplete or altered.
        # `force_download` replaces them.
        for file in (MANIFEST, STATE):
            hf_hub_download(
                repository, file, revision=commit, local_dir=folder, force_download=True
            )
    check_states(folder)
    return folder


@contextmanager
def hub_errors(address: str) -> Generator[None]:
    """Turn any error of the hub in the block into one of ours, on one line.

    Raises:
        UserError: There is no such repository or revision, or the token may not do this.
        EndpointError: The hub cannot be reached.
    """
    from huggingface_hub import errors

    try:
        yield
    except MempilerError:
        raise
    except Exception as error:  # the libraries below raise errors of many kinds
        description = one_line(error, 200) or type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", 0)

        if isinstance(error, errors.RepositoryNotFoundError):
            advice = "or it is private: set HF_TOKEN, or run: hf auth login"
            raise UserError(
                f"{address}: there is no such repository on the hub, {advice}"
            ) from error
        if status in (401, 403):
            raise UserError(
                f"{address}: the hub refuses the token (status {status}); set another HF_TOKEN"
            ) from error
        if isinstance(
            error,
            errors.RevisionNotFoundError | errors.HFValidationError | errors.EntryNotFoundError,
        ):
            raise UserError(
                f"{address}: the hub has no such repository, revision or program: {description}"
            ) from error
        raise EndpointError(
            f"{address}: the hub cannot be reached, or fails: {description}"
        ) from error
