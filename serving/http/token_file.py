"""The token file: which tenant a bearer token belongs to, and what the tenant may use.

    acme    a-random-token-of-16-characters-or-more
    globex  sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbd...
    initech another-random-token usd-per-day=5 requests-per-minute=60 feedback=on

A token gives access to the memories of all users of its tenant. The file is read again when it
changes, so a token is withdrawn by deleting its line. A file that has become unreadable or invalid
could have withdrawn any token: all requests are refused until it is repaired.
"""

from __future__ import annotations

import hashlib
import re
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import DataError, UserError
from ...memory.names import valid_name
from ...records.text_file import read_bounded
from ..failure_log import log

OPERATOR = "metrics"
"""The tenant whose tokens open `/metrics`, and nothing else."""

_CLOCK_TICK = 2 * 10**9
"""Nanoseconds in which two changes of a file may have one time: file systems' clocks are coarse."""
_MAX_LENGTH = 10_000_000
"""Most characters of a token file."""
_LINE = re.compile(
    r"""
    (?P<tenant>\S+)
    \s+ (?: sha256:(?P<digest>[0-9a-f]{64}) | (?!sha256:|[a-z-]+=)(?P<token>\S{16,}) )
    (?P<limits> (?: \s+ [a-z-]+=\S* )* )
    """,
    re.VERBOSE,
)
_LINE_FORM = (
    "TENANT TOKEN, the token of at least 16 characters, or TENANT sha256:HEX, of 64 hexadecimal"
    " digits in lower case; limits such as usd-per-day=5, or feedback=on, may follow"
)
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,12})?")


@dataclass(frozen=True)
class TenantLimits:
    """What a tenant may use; None where nothing is set."""

    usd_per_day: float | None = None
    """US dollars of model calls in a day of UTC."""
    requests_per_minute: int | None = None
    feedback: bool | None = None
    """Whether answers of the tenant are kept, so that its users can rate them."""

    def or_else(self, defaults: TenantLimits) -> TenantLimits:
        """Return these limits, with those of `defaults` where nothing is set."""
        usd_per_day = self.usd_per_day
        if usd_per_day is None:
            usd_per_day = defaults.usd_per_day
        requests_per_minute = self.requests_per_minute
        if requests_per_minute is None:
            requests_per_minute = defaults.requests_per_minute
        feedback = defaults.feedback if self.feedback is None else self.feedback
        return TenantLimits(usd_per_day, requests_per_minute, feedback)


@dataclass(frozen=True)
class _Content:
    """What a token file says."""

    tenants: dict[str, str]
    """Tenants by the digests of their tokens."""
    limits: dict[str, TenantLimits]
    """Limits by tenant."""


@dataclass(frozen=True)
class _FileVersion:
    """What tells versions of a file apart without reading it.

    Clocks of file systems are coarse. Two changes within one tick may give the same version, so a
    version that was young when it was taken (`is_settled`) does not show that nothing has changed.
    """

    device: int
    inode: int
    size: int
    modified: int
    """When its content was written, in nanoseconds; whoever may write the file can set it."""
    changed: int
    """When anything of it was changed; only the system sets it."""
    is_settled: bool = field(compare=False)
    """Whether the last change was longer ago than a tick, when this version was taken. Then a later
    change has another time, and so another version."""


class Tokens:
    """The tokens of a file, of which only digests are kept, and the limits of their tenants.

    Args:
        path: The token file.

    Raises:
        UserError: It cannot be read, holds no token, or a line is wrong.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        # Requests ask in the event loop, background writers in their threads.
        self._lock = threading.Lock()
        self._text_digest = ""
        """The digest of the text that was read last; "" if it could not be read or was wrong."""
        self._tenants: dict[str, str] = {}
        self._limits: dict[str, TenantLimits] = {}
        self._read_version = self._current_version()
        """The version that was read last; None if there was no file."""
        self._read()

    def tenant(self, token: str) -> str | None:
        """Return the tenant of a token; None for an unknown one.

        The token is looked up by its digest, so the time that takes says nothing about the tokens
        in the file.
        """
        self._refresh()
        return self._tenants.get(_digest(token))

    def limits(self, tenant: str) -> TenantLimits:
        """Return the limits that the file sets for a tenant.

        While the file is invalid, those of its last valid version hold.
        """
        self._refresh()
        return self._limits.get(tenant, TenantLimits())

    @property
    def has_budgets(self) -> bool:
        """Whether the file limits the dollars of any tenant."""
        self._refresh()
        return any(limits.usd_per_day is not None for limits in self._limits.values())

    @property
    def several(self) -> bool:
        """Whether there is more than one tenant, beside the operator."""
        return self._has_several_tenants

    @property
    def works(self) -> bool:
        """Whether the file can be used."""
        self._refresh()
        return bool(self._tenants)

    def _refresh(self) -> None:
        """Read the file again if it has changed, or may have changed, since it was read."""
        with self._lock:
            version = self._current_version()
            if not self._may_have_changed(version):
                return

            try:
                self._read()
            except UserError as error:
                # An unsettled version is read again and again. Its error is logged once.
                is_same_version = version == self._read_version
                is_known_to_be_wrong = is_same_version and not self._text_digest
                if not is_known_to_be_wrong:
                    log.error(
                        "token file is wrong, all requests are refused",
                        extra={"cause": str(error)},
                    )
                self._withdraw_all_tokens()
            self._read_version = version

    def _may_have_changed(self, version: _FileVersion | None) -> bool:
        """Return whether a file of this version may differ from the file that was read last."""
        if version != self._read_version:
            return True
        # An unsettled version may hide a change.
        return self._read_version is not None and not self._read_version.is_settled

    def _withdraw_all_tokens(self) -> None:
        """Refuse all requests until the file is valid again; the limits of tenants stay."""
        self._set_tenants({})
        # Otherwise a file that is repaired by its old text would be taken for unchanged.
        self._text_digest = ""

    def _read(self) -> None:
        """Read the file, and keep what it says, unless its text is the same as before.

        Raises:
            UserError: It cannot be read, holds no token, or a line is wrong.
        """
        text = _read_text(self._path)
        digest = _digest(text)
        if digest == self._text_digest:
            return

        content = _parse(text, self._path)
        self._set_tenants(content.tenants)
        self._limits = content.limits
        self._text_digest = digest
        _warn_if_everybody_can_read(self._path)

    def _set_tenants(self, tenants: dict[str, str]) -> None:
        self._tenants = tenants
        # The operator asks no model, and takes no share of anything.
        self._has_several_tenants = len(set(tenants.values()) - {OPERATOR}) > 1

    def _current_version(self) -> _FileVersion | None:
        """Return which version of the file is there now; None if there is none."""
        try:
            status = self._path.stat()
        except (OSError, ValueError):
            return None
        return _FileVersion(
            device=status.st_dev,
            inode=status.st_ino,
            size=status.st_size,
            modified=status.st_mtime_ns,
            changed=status.st_ctime_ns,
            is_settled=time.time_ns() - status.st_ctime_ns > _CLOCK_TICK,
        )


def _read_text(path: Path) -> str:
    """Return the text of a token file.

    Raises:
        UserError: It cannot be read, or is too long.
    """
    try:
        return read_bounded(path, _MAX_LENGTH, fix="it has a line for each token")
    except DataError as error:
        raise UserError(f"token file {error}") from error


def _warn_if_everybody_can_read(path: Path) -> None:
    """Log a warning if everybody on this machine can read a token file."""
    with suppress(OSError):
        if path.stat().st_mode & stat.S_IROTH:
            log.warning(
                "everybody on this machine can read the token file; take that right away: chmod o-r"
            )


def _parse(text: str, path: Path) -> _Content:
    """Return what the text of a token file says.

    Raises:
        UserError: It holds no token, or a line is wrong; no message holds a token.
    """
    tenants: dict[str, str] = {}
    limits: dict[str, TenantLimits] = {}
    first_lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue

        place = f"{path}: line {number}"
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise UserError(f"{place}: expected {_LINE_FORM}")

        # A token belongs to one tenant. A tenant may have several tokens, each in a line.
        tenant = valid_name("tenant", match["tenant"])
        digest = match["digest"] or _digest(match["token"])
        tenant_above = tenants.setdefault(digest, tenant)
        if tenant_above != tenant:
            raise UserError(
                f"{place}: this token is bound to another tenant above; give each its own"
            )

        # All lines of a tenant must have the same limits.
        tenant_limits = _parse_limits(match["limits"].split(), place)
        if tenant == OPERATOR and tenant_limits != TenantLimits():
            raise UserError(f"{place}: the tenant {OPERATOR} only reads metrics; it has no limits")
        first_line = first_lines.setdefault(tenant, number)
        limits_above = limits.setdefault(tenant, tenant_limits)
        if limits_above != tenant_limits:
            raise UserError(
                f"{place}: other limits than in line {first_line}, which is of tenant {tenant!r},"
                " too; give the same in all lines of a tenant"
            )

    if not tenants:
        raise UserError(f"{path}: holds no token; write lines of the form: TENANT TOKEN")
    return _Content(tenants, limits)


def _parse_limits(words: list[str], place: str) -> TenantLimits:
    """Return the limits at the end of a line, e.g. of ["usd-per-day=5"].

    Args:
        words: The words of the line behind its token.
        place: The file and the line, for errors.

    Raises:
        UserError: A limit is unknown, is there twice, or has a wrong value.
    """
    usd_per_day: float | None = None
    requests_per_minute: int | None = None
    feedback: bool | None = None
    names: set[str] = set()
    for word in words:
        name, _, value = word.partition("=")
        if name in names:
            raise UserError(f"{place}: {name} is there twice; give it once")
        names.add(name)

        if name == "usd-per-day":
            if not _NUMBER.fullmatch(value):
                raise UserError(f"{place}: {name}: give US dollars, e.g. {name}=2.50")
            usd_per_day = float(value)
        elif name == "requests-per-minute":
            if not _NUMBER.fullmatch(value) or "." in value:
                raise UserError(f"{place}: {name}: give a whole number, e.g. {name}=60")
            requests_per_minute = int(value)
        elif name == "feedback":
            if value not in ("on", "off"):
                raise UserError(f"{place}: {name}: give {name}=on or {name}=off")
            feedback = value == "on"
        else:
            # The word is not repeated: it may be a token in a wrong place.
            raise UserError(
                f"{place}: unknown limit; choose usd-per-day=..., requests-per-minute=... or"
                " feedback=on"
            )
    return TenantLimits(usd_per_day, requests_per_minute, feedback)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
