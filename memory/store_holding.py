"""Who may write a user's memory until when, inside a transaction that the store has opened.

The statements are made once; what they are told is the time, where no server has a clock of its own.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, case, update

from . import store_tables as t
from .store_rows import token
from .store_tables import given, mine, whose
from .stored import LONGEST_LEASE, Claim


class _Holding:
    """Statements that change who holds a user until when, by the clock that decides."""

    def __init__(self, now: Any) -> None:
        u, of_user = t.users.c, update(t.users).where(*mine(t.users))
        until = now + given("lease")
        self.hold = of_user.values(worker=given("by"), claimed_until=until)
        self.let_go = of_user.where(u.worker == given("by")).values(worker="", claimed_until=now)
        same = of_user.where(u.version == given("old")).returning(u.version)
        self.advance = same.values(version=given("new"), claimed_until=until)
        held = u.worker == given("by")
        free = {"worker": case((held, ""), else_=u.worker), "claimed_until": case((held, now), else_=u.claimed_until)}
        self.end = same.values(version=given("new"), **free)


_HERE, _ON_SERVER = _Holding(given("now")), _Holding(t.SERVER_CLOCK)


def _holding(db: Connection) -> tuple[_Holding, dict[str, float]]:
    return (_ON_SERVER, {}) if db.dialect.name == "postgresql" else (_HERE, {"now": time.time()})


def hold(db: Connection, claim: Claim, lease: float) -> None:
    """Notes who holds a user, and until when."""
    holding, now = _holding(db)
    lease = min(lease, LONGEST_LEASE)
    db.execute(holding.hold, whose(claim.owner, **now, by=claim.worker, lease=lease))


def let_go(db: Connection, claim: Claim) -> None:
    """Notes that nobody holds a user, if the claim is still good."""
    holding, now = _holding(db)
    db.execute(holding.let_go, whose(claim.owner, **now, by=claim.worker))


def advance(db: Connection, claim: Claim, lease: float) -> str | None:
    """Gives a user's memory a new version if it still has the old one; None otherwise.

    Args:
        db: A transaction that writes.
        claim: Whose memory, and the old version.
        lease: Seconds for which the claim is renewed; 0 gives it back.
    """
    holding, now = _holding(db)
    new = token()
    about = whose(claim.owner, **now, old=claim.version, new=new)
    if lease:
        made = db.execute(holding.advance, {**about, "lease": min(lease, LONGEST_LEASE)})
    else:
        made = db.execute(holding.end, {**about, "by": claim.worker})
    return new if made.first() else None
