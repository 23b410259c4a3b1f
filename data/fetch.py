"""Downloads the genuine files, of the web or of the Hugging Face hub: licence first, sha256 checked, nothing in part.

A hub set is fetched as a file at a fixed revision, so that its bytes can be checked. The sha256 of `locomo` was
computed by us; that of `msc` others report, so a difference there is told and the file is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from ..errors import DataError, EndpointError, UnknownNameError, UserError
from ..records.atomic_file import atomic_write
from ..text import one_line

SECONDS = 30
"""How long a server may be silent."""


@dataclass(frozen=True)
class Download:
    """Where a benchmark's file is, and what it must be."""

    file: str
    address: str
    sha256: str
    """Empty if nobody said."""
    licence: str
    reported: bool = False
    """Whether the sha256 is reported by third parties: a different file is then kept, with a note."""


@dataclass(frozen=True)
class Fetched:
    """A file that is there now."""

    path: Path
    sha256: str
    verified: bool
    """Whether the sha256 is the expected one."""
    downloaded: bool
    """False when the right file was there already."""


_KNOWN = json.loads(Path(__file__).with_name("downloads.json").read_text(encoding="utf-8"))
DOWNLOADS: Mapping[str, Download] = {name: Download(**about) for name, about in _KNOWN.items()}
"""The files that can be fetched, by the name of their benchmark."""


HUB = "hf://datasets/"
_ON_HUB = re.compile(rf"{HUB}(?P<set>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?/(?P<file>[\w./ -]+)")


def resolve_download(name: str, sha256: str = "") -> Download:
    """What a name stands for.

    Args:
        name: A key of `DOWNLOADS`, or `hf://datasets/OWNER/NAME@COMMIT/FILE`.
        sha256: What a file of the hub must have.

    Raises:
        UnknownNameError: There is no such file.
        UserError: It is at no commit, which a branch or a tag is not: they may move.
    """
    if not name.startswith(HUB):
        if name not in DOWNLOADS:
            raise UnknownNameError("data set to fetch", name, DOWNLOADS)
        if sha256:
            raise UserError(f"{name}: its sha256 is known; give one for files of the hub only")
        return DOWNLOADS[name]
    found = _ON_HUB.fullmatch(name)
    if found is None or ".." in name:
        raise UserError(f"{name}: is no file of the hub; write {HUB}OWNER/NAME@COMMIT/FILE")
    commit = found["revision"] or "none"
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise UserError(f"{name}: {commit} is no commit and may change; take one from the set's page, 40 digits")
    page = f"{_hub()}/datasets/{found['set']}"
    address = f"{page}/resolve/{commit}/{found['file']}"
    return Download(Path(found["file"]).name, address, sha256, f"as its page says: {page}")


def fetch(name: str, folder: Path, on_message: Callable[[str], None], sha256: str = "") -> Fetched:
    """Fetches a benchmark's file into a folder, unless the right one is there.

    Args:
        name: As for `resolve_download`.
        folder: Where to; it must exist.
        on_message: Called with the licence before the download, and with a checksum that differs from the recorded one.
        sha256: What a file of the hub must have.

    Raises:
        UserError: There is no such file, or the folder cannot be written.
        EndpointError: The address cannot be reached; the message says how to download it manually.
        DataError: What came is not the expected file, or another file of its name is in the folder.
    """
    wanted = resolve_download(name, sha256)
    path = folder / wanted.file
    if path.exists():
        return _kept(path, wanted)
    content = _content(name, wanted, on_message)
    digest = hashlib.sha256(content).hexdigest()
    if wanted.sha256 and digest != wanted.sha256:
        if not wanted.reported:
            told = f"sha256 is {digest}, expected {wanted.sha256}"
            raise DataError(f"{wanted.address}: {told}; nothing was kept, try again")
        on_message(f"{wanted.file}: sha256 is {digest}, others report {wanted.sha256}; look at it before you trust it")
    with atomic_write(path) as file:
        file.buffer.write(content)
    return Fetched(path, digest, digest == wanted.sha256, downloaded=True)


def _kept(path: Path, wanted: Download) -> Fetched:
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none, it is no file"
    if digest != wanted.sha256:
        expected = f"expected {wanted.sha256}" if wanted.sha256 else "what it must be nobody said: give --sha256"
        problem = f"is there already, and is another file (sha256 {digest}, {expected})"
        raise DataError(f"{path}: {problem}; delete it or choose another --out")
    return Fetched(path, digest, verified=True, downloaded=False)


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _content(name: str, wanted: Download, note: Callable[[str], None]) -> bytes:
    """The bytes at the address, after a note of the licence; the token of the hub goes to the hub alone."""
    from huggingface_hub import constants, get_token

    of_hub = wanted.address.startswith((_hub(), "https://huggingface.co/"))
    by_hand = f"download {wanted.address} by hand and name the file with --data"
    try:
        if of_hub and constants.HF_HUB_OFFLINE:
            raise httpx.ConnectError("HF_HUB_OFFLINE switches the hub off")
        token = get_token() if of_hub else None
        headers = {"User-Agent": "mempiler", **({"Authorization": f"Bearer {token}"} if token else {})}
        with httpx.stream("GET", wanted.address, headers=headers, follow_redirects=True, timeout=SECONDS) as response:
            response.raise_for_status()
            note(f"{wanted.file}: licence {wanted.licence}")
            return response.read()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0
        if of_hub and status in (401, 403, 404):
            by_hand = f"set HF_TOKEN if the set is private, or {by_hand}"
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        raise EndpointError(f"{name} cannot be fetched ({reason}); {by_hand}") from error
