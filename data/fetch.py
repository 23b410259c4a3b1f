"""Fetch the genuine file of a benchmark: from the Hugging Face hub, or from another server.

    fetched = fetch("locomo", Path("data"), print)
    fetched.path            # data/locomo10.json

The licence is shown before the download, the sha256 is checked after it, and a file of which only a
part came is never kept. A file of the hub is named with its commit, so its bytes cannot change.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError, EndpointError, UnknownNameError, UserError
from ..records.atomic_file import atomic_write
from ..text import one_line

TIMEOUT = 30
"""Seconds for which a server may be silent."""

HUB_PREFIX = "hf://datasets/"
"""What the address of a file of the Hugging Face hub begins with."""

_HUB_ADDRESS = re.compile(
    rf"{HUB_PREFIX}(?P<dataset>[\w.-]+/[\w.-]+)(?:@(?P<commit>[^/]+))?/(?P<file>[\w./ -]+)"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Download:
    """Where a benchmark's file is, and how it is checked."""

    file: str
    """The name of the file here."""
    address: str
    """Its address in the web, or `hf://datasets/OWNER/NAME@COMMIT/FILE`."""
    sha256: str
    """Empty if nobody has published it."""
    licence: str
    reported: bool = False
    """Whether the sha256 was published by third parties only. A different file is then kept, and
    the difference is reported."""


@dataclass(frozen=True)
class HubFile:
    """A file of a dataset on the Hugging Face hub."""

    dataset: str
    """Owner and name, e.g. "MemGPT/MSC-Self-Instruct"."""
    commit: str
    file: str

    @property
    def page(self) -> str:
        """The address of the dataset's page."""
        return f"{_hub_endpoint()}/datasets/{self.dataset}"

    @property
    def web_address(self) -> str:
        """The address of the file for a browser."""
        return f"{self.page}/resolve/{self.commit}/{self.file}"


@dataclass(frozen=True)
class Fetched:
    """A file that was fetched, or was there already."""

    path: Path
    sha256: str
    verified: bool
    """Whether the sha256 is the expected one."""
    downloaded: bool
    """False if the right file was there already."""


def _read_downloads() -> dict[str, Download]:
    text = Path(__file__).with_name("downloads.json").read_text(encoding="utf-8")
    return {name: Download(**fields) for name, fields in json.loads(text).items()}


DOWNLOADS: Mapping[str, Download] = _read_downloads()
"""The files that can be fetched, by the name of their benchmark."""


def resolve_download(name: str, sha256: str = "") -> Download:
    """Return the download of a name.

    Args:
        name: A key of `DOWNLOADS`, or `hf://datasets/OWNER/NAME@COMMIT/FILE`.
        sha256: The expected digest of a file of the hub.

    Raises:
        UnknownNameError: There is no such download.
        UserError: The address names no file of the hub, or no commit. A branch or a tag may move.
    """
    if name.startswith(HUB_PREFIX):
        hub_file = _parse_hub_address(name)
        file_name = Path(hub_file.file).name
        return Download(file_name, name, sha256, licence=f"as its page says: {hub_file.page}")

    if name not in DOWNLOADS:
        raise UnknownNameError("data set to fetch", name, DOWNLOADS)
    if sha256:
        raise UserError(f"{name}: its sha256 is known; give one for files of the hub only")
    return DOWNLOADS[name]


def fetch(name: str, folder: Path, on_message: Callable[[str], None], sha256: str = "") -> Fetched:
    """Fetch a benchmark's file into a folder, unless the right one is there.

    Args:
        name: As for `resolve_download`.
        folder: Where the file is stored; it must exist.
        on_message: Called with the licence before the download, and with a warning if the digest is
            not the one that others report (`Download.reported`).
        sha256: The expected digest of a file of the hub.

    Raises:
        UserError: There is no such file, or the folder cannot be written.
        EndpointError: The address cannot be reached; the message says how to download it by hand.
        DataError: Another file than the expected one came, or a file of its name is in the folder.
    """
    download = resolve_download(name, sha256)
    path = folder / download.file
    if path.exists():
        return _check_existing_file(path, download)

    on_message(f"{download.file}: licence {download.licence}")
    content = _download(name, download)
    digest = hashlib.sha256(content).hexdigest()

    if download.sha256 and digest != download.sha256:
        # A digest that is only reported by others may be wrong itself.
        if not download.reported:
            difference = f"sha256 is {digest}, expected {download.sha256}"
            raise DataError(f"{download.address}: {difference}; nothing was kept, try again")
        on_message(
            f"{download.file}: sha256 is {digest}, others report {download.sha256};"
            " look at it before you trust it"
        )

    with atomic_write(path) as file:
        file.buffer.write(content)
    return Fetched(path, digest, verified=digest == download.sha256, downloaded=True)


def _check_existing_file(path: Path, download: Download) -> Fetched:
    """Describe a file that is there already; refuse it if it is not known to be the right one.

    Raises:
        DataError: It is another file, or a folder, or the digest of the right one is not known.
    """
    found = "it is no file"
    if path.is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest == download.sha256:
            return Fetched(path, digest, verified=True, downloaded=False)
        found = f"sha256 {digest}"

    expected = f"expected {download.sha256}"
    if not download.sha256:
        expected = "the right one is not known: give --sha256"
    raise DataError(
        f"{path}: is there already, and is another file ({found}, {expected});"
        " delete it or choose another --out"
    )


def _parse_hub_address(address: str) -> HubFile:
    """Return the parts of `hf://datasets/OWNER/NAME@COMMIT/FILE`."""
    match = _HUB_ADDRESS.fullmatch(address)
    # ".." could lead out of the folder that the file is downloaded into.
    if match is None or ".." in address:
        raise _no_hub_file(address)
    commit = match["commit"] or "none"
    if not _COMMIT.fullmatch(commit):
        advice = "take one from the set's page, 40 digits"
        raise UserError(f"{address}: {commit} is no commit and may change; {advice}")
    return HubFile(match["dataset"], commit, match["file"])


def _no_hub_file(address: str) -> UserError:
    form = f"{HUB_PREFIX}OWNER/NAME@COMMIT/FILE"
    return UserError(f"{address}: is no file of the hub; write {form}")


def _hub_endpoint() -> str:
    # The hub's own package reads this variable only once, when it is imported.
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _download(name: str, download: Download) -> bytes:
    """Return the bytes at the address of a download.

    Raises:
        EndpointError: The address cannot be reached.
        UserError: The temporary folder cannot be written, or the hub allows no such name.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="mempiler-fetch-") as folder:
            workspace = Path(folder)
            if download.address.startswith(HUB_PREFIX):
                path = _download_from_hub(name, download.address, workspace)
            else:
                path = _download_from_web(name, download.address, workspace)
            return path.read_bytes()
    except OSError as error:
        # The two functions above raise an EndpointError for errors of the network.
        reason = one_line(str(error), 200)
        raise UserError(
            f"{name}: the temporary folder cannot be written ({reason});"
            " make room in it, or set TMPDIR to another one"
        ) from error


def _download_from_hub(name: str, address: str, workspace: Path) -> Path:
    """Download a file of the hub, with the user's token if there is one."""
    import httpx
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import HFValidationError

    hub_file = _parse_hub_address(address)
    by_hand = f"download {hub_file.web_address} by hand and name the file with --data"
    if constants.HF_HUB_OFFLINE:
        reason = "HF_HUB_OFFLINE switches the hub off"
        raise EndpointError(f"{name} cannot be fetched ({reason}); {by_hand}")

    try:
        path = hf_hub_download(
            hub_file.dataset,
            hub_file.file,
            repo_type="dataset",
            revision=hub_file.commit,
            local_dir=workspace,
            endpoint=_hub_endpoint(),
        )
    except HFValidationError as error:
        raise _no_hub_file(address) from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError) as error:
        # RuntimeError is what the hub's storage of large files (hf_xet) raises for any failure.
        if _is_local_error(error):
            # The caller says that the temporary folder cannot be written.
            raise
        response = getattr(error, "response", None)
        if response is not None and response.status_code in (401, 403, 404):
            by_hand = f"set HF_TOKEN if the set is private, or {by_hand}"
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        raise EndpointError(f"{name} cannot be fetched ({reason}); {by_hand}") from error
    return Path(path)


def _is_local_error(error: Exception) -> bool:
    """Return whether an error of the hub's package comes from the disk, not from the network.

    An OSError of the operating system has an `errno`. The package also raises an OSError of its
    own, without an `errno`, if the file that came is not the one that was announced.
    """
    is_of_network = isinstance(error, ConnectionError | TimeoutError)
    return isinstance(error, OSError) and error.errno is not None and not is_of_network


def _download_from_web(name: str, address: str, workspace: Path) -> Path:
    """Download a file of any server; no token is sent."""
    import pooch
    import requests

    path = workspace / "download"
    # Read at once: a stream that breaks off would leave its connection open.
    download = pooch.HTTPDownloader(timeout=TIMEOUT, stream=False)
    try:
        download(address, path, None)
    except requests.RequestException as error:
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        by_hand = f"download {address} by hand and name the file with --data"
        raise EndpointError(f"{name} cannot be fetched ({reason}); {by_hand}") from error
    return path
