"""What tenants use of a service: requests in a minute, US dollars in a day.

    count = store.tenant_usage.count_request("acme")
    count.requests                                          # 1: the first one in this minute

    reservation = store.tenant_usage.reserve("acme", usd=0.02, limit=5.0, lifetime=100.0)
    ...                                                     # a model call, of 2 cents at most
    store.tenant_usage.settle(reservation, usd=0.013)       # what it really cost

All processes of a service count here, so a limit holds for their sum. Minutes and days are those of
UTC, by the clock of the database.

Dollars are reserved before a call and settled after it. What a process that was killed had reserved
is free again when the reservation expires, or when the next day begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from .database import Database

_ROUNDING = 1e-9
"""Sums of dollars that exceed a limit by this part of it do so by rounding only."""


class RequestCount(NamedTuple):
    """The requests of a tenant in the current minute."""

    requests: int
    seconds_left: float
    """Seconds until the next minute begins."""


@dataclass(frozen=True)
class Reservation:
    """Dollars that a tenant may not spend otherwise until they are settled."""

    id: str
    tenant: str
    day: int
    """The day that they count for, as the number of days since 1970."""


@dataclass(frozen=True)
class SpendingRefusal:
    """Why dollars could not be reserved."""

    is_spent: bool
    """Whether what was spent leaves too little; if not, calls in progress may use up the rest."""
    seconds_left: float
    """Seconds until the next day begins."""


class TenantUsage:
    """Counts what tenants use, for all processes that share the database.

    Args:
        database: Where the counts are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def count_request(self, tenant: str) -> RequestCount:
        """Count a request of a tenant, and return how many there were in this minute, with it."""
        with self._database.write_transaction() as transaction:
            row = transaction.execute("count_tenant_request", tenant=tenant).one()
            return RequestCount(row.requests, float(row.seconds_left))

    def reserve(
        self, tenant: str, usd: float, limit: float, lifetime: float
    ) -> Reservation | SpendingRefusal:
        """Reserve dollars of a tenant's day, if they are left.

        Args:
            tenant: Who spends them.
            usd: How many.
            limit: The most that the tenant may spend in a day.
            lifetime: Seconds after which the reservation expires.
        """
        with self._database.write_transaction() as transaction:
            # This locks the row of the tenant: other processes that reserve for the tenant wait.
            today = transaction.execute("lock_tenant_day", tenant=tenant).one()
            transaction.execute("delete_expired_reservations", tenant=tenant)
            reserved = transaction.execute(
                "sum_tenant_reservations", tenant=tenant, day=today.day
            ).scalar_one()

            limit_with_rounding = limit * (1 + _ROUNDING)
            if today.usd + reserved + usd > limit_with_rounding:
                is_spent = today.usd + usd > limit_with_rounding
                return SpendingRefusal(is_spent, float(today.seconds_left))

            reservation = Reservation(uuid4().hex, tenant, today.day)
            transaction.execute(
                "insert_reservation",
                id=reservation.id,
                tenant=tenant,
                day=today.day,
                usd=usd,
                lifetime=lifetime,
            )
        return reservation

    def settle(self, reservation: Reservation, usd: float) -> None:
        """Replace a reservation by what was really spent.

        That is counted even if the reservation has expired, unless its day is over.
        """
        with self._database.write_transaction() as transaction:
            # First the row that `reserve` locks first, so that the two never wait for each other.
            transaction.execute(
                "add_tenant_cost", tenant=reservation.tenant, day=reservation.day, usd=usd
            )
            transaction.execute("delete_reservation", id=reservation.id)

    def spent_today(self, tenant: str) -> float:
        """Return the dollars that a tenant has spent today, without what is reserved."""
        with self._database.read_without_transaction() as transaction:
            spent = transaction.execute("select_tenant_cost", tenant=tenant).scalar()
        return 0.0 if spent is None else float(spent)
