"""What became of sessions, as numbered events of a tenant: who reads them in order misses none, whoever wrote them.

    commit(memory, items) ──> event 17: session chat-17 of ada is remembered ──> read(after=16), in any process

An event is written in the transaction that changes the state it tells of, so there is one if and only if it happened.
Its number is taken under a lock that holds until that transaction ends: no lower number appears after a higher one was
read. The last `KEPT` events of a tenant are kept, and those of a user until the user is forgotten.

Limits: a rebuild remembers sessions anew, and tells so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from . import store_tables as t
from .prepared import Prepared
from .store_tables import given
from .stored import Event, Events, Owner, State

KEPT = 10_000
"""Events of a tenant that are kept at least."""
PRUNED_AT = 100
"""Events after which those beyond `KEPT` are deleted."""

_NEW = Prepared(insert(t.events))
_COUNT = Prepared(select(t.event_counts).where(t.event_counts.c.tenant == given("of_tenant")))
_AFTER = Prepared(
    select(t.events)
    .where(t.events.c.tenant == given("of_tenant"), t.events.c.number > given("after"))
    .order_by(t.events.c.number)
    .limit(given("most"))
)


def tell(db: Connection, owner: Owner, states: Sequence[tuple[str, State]]) -> None:
    """Writes what became of sessions of a user; the last thing that a transaction does, for it makes others wait.

    Args:
        db: A transaction that writes.
        owner: Whose.
        states: Ids of sessions, and the state that each is in now.
    """
    if not states:
        return
    server = db.dialect.name == "postgresql"
    (counted,) = _counting(server)(db, {"of_tenant": owner.tenant, "more": len(states)})
    last = int(counted.number)
    about = {"tenant": owner.tenant, "user": owner.user}
    about |= {"at": db.execute(select(t.SERVER_CLOCK)).scalar() if server else t.clock(db)}
    first = last - len(states) + 1
    rows = [{**about, "number": n, "session": id, "state": state} for n, (id, state) in enumerate(states, first)]
    _NEW.each(db, rows)
    if last // PRUNED_AT > (first - 1) // PRUNED_AT:
        _prune(db, owner.tenant, last - KEPT)


@cache
def _counting(server: bool) -> Prepared:
    """Adds to the number of the last event of a tenant, and returns it; made once, since it runs with every commit."""
    c = t.event_counts.c
    new = (
        (postgresql if server else sqlite)
        .insert(t.event_counts)
        .values(tenant=given("of_tenant"), number=given("more"), dropped=0)
    )
    new = new.on_conflict_do_update(index_elements=["tenant"], set_={"number": c.number + given("more")})
    return Prepared(new.returning(c.number))


def _prune(db: Connection, tenant: str, upto: int) -> None:
    if upto > 0:
        c = t.events.c
        db.execute(delete(t.events).where(c.tenant == tenant, c.number <= upto))
        db.execute(update(t.event_counts).where(t.event_counts.c.tenant == tenant).values(dropped=upto))


def read(db: Connection, tenant: str, after: int | None, most: int) -> Events:
    """The events of a tenant behind a number, in order; none, and the number of the last one, where that is None."""
    count = next(iter(_COUNT(db, {"of_tenant": tenant})), None)
    last, dropped = (count.number, count.dropped) if count is not None else (0, 0)
    if after is None or after >= last:
        return Events((), last, missed=False)
    found = _AFTER(db, {"of_tenant": tenant, "after": after, "most": most})
    told = tuple(Event(row.number, row.user, row.session, row.state, row.at) for row in found)
    # Numbers behind the last of a whole answer are of users who were forgotten.
    return Events(told, told[-1].number if len(told) == most else last, missed=after < dropped)


def forget_session(db: Connection, owner: Owner, session: str) -> None:
    """Deletes the events of a session."""
    c = t.events.c
    db.execute(delete(t.events).where(*t.of(t.events, owner), c.session == session))
