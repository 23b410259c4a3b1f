"""Listing and counting the users of a store, for operators and for pages of a service."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, get_args

from sqlalchemy import Row

from ..results import MemoryStatus
from .database import Database, Transaction, batches
from .document_rows import read_stamp
from .states import State


class Users:
    """Lists and counts the users of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_all(self, tenant: str | None = None, user: str | None = None) -> list[MemoryStatus]:
        """Return counts of items and the state of the memory of users, by tenant and name.

        Args:
            tenant: The users of this tenant; of all tenants if None.
            user: The users of this name; of all names if None.
        """
        with self._database.read_transaction() as transaction:
            owners = _select_owners(transaction, tenant, user)
            return _statuses(transaction, owners)

    def page(self, tenant: str, after: str, limit: int) -> list[MemoryStatus]:
        """Return the next users of a tenant, with counts of items and the state of the memory.

        Users come in the order of their names.

        Args:
            tenant: The tenant.
            after: The last name on the page before; "" for the first page.
            limit: The most users on the page.
        """
        with self._database.read_transaction() as transaction:
            owners = transaction.execute(
                "select_page_of_owners", tenant=_stored_form(tenant), after=after, limit=limit
            )
            return _statuses(transaction, owners.all())

    def counts(self) -> dict[str, int]:
        """Count the users of the store, and their items in each state.

        Returns:
            The number of users as `users`, and the number of items by state; 0 for a state in which
            there is none.
        """
        counts = {"users": 0}
        for state in get_args(State):
            counts[state] = 0

        with self._database.read_transaction() as transaction:
            counts["users"] = int(transaction.execute("count_users").scalar_one())
            for row in transaction.execute("count_items_by_state"):
                counts[row.state] = row.items
        return counts

    def failed_count(self) -> int:
        """Return how many items of all users are set aside as `failed`."""
        with self._database.read_without_transaction() as transaction:
            return int(transaction.execute("count_failed_items").scalar_one())


def _select_owners(
    transaction: Transaction, tenant: str | None, user: str | None
) -> Sequence[Row[Any]]:
    """Return `tenant` and `user` of users, sorted.

    Args:
        transaction: The transaction that reads.
        tenant: Only users of this tenant; of all tenants if None.
        user: Only users of this name; of all names if None.
    """
    if tenant is not None and user is not None:
        return transaction.execute(
            "select_owner", tenant=_stored_form(tenant), user=_stored_form(user)
        ).all()
    if tenant is not None:
        return transaction.execute("select_owners_of_tenant", tenant=_stored_form(tenant)).all()
    if user is not None:
        return transaction.execute("select_owners_of_name", user=_stored_form(user)).all()
    return transaction.execute("select_owners").all()


def _stored_form(name: str) -> str:
    """Return a name in Unicode's form NFC, in which names are stored.

    Unlike `valid_name` it refuses nothing: an impossible name is simply not found.
    """
    return unicodedata.normalize("NFC", name)


def _statuses(transaction: Transaction, owners: Sequence[Row[Any]]) -> list[MemoryStatus]:
    """Return counts of items and the state of the memory of some users.

    Args:
        transaction: The transaction that reads.
        owners: Rows of `tenant` and `user`, sorted by both; the result has the same order.
    """
    names_by_tenant: dict[str, list[str]] = {}
    for owner in owners:
        names_by_tenant.setdefault(owner.tenant, []).append(owner.user)

    statuses: list[MemoryStatus] = []
    for tenant, names in names_by_tenant.items():
        for batch in batches(names):
            rows = transaction.execute("select_statuses", tenant=tenant, users=batch)
            statuses.extend(_read_status(row) for row in rows)
    return statuses


def _read_status(row: Row[Any]) -> MemoryStatus:
    """Return the status in a row of `select_statuses`, where a user without items has NULL."""
    return MemoryStatus(
        user=row.user,
        tenant=row.tenant,
        sessions=row.sessions or 0,
        queued=row.queued or 0,
        partial=row.partial or 0,
        failed=row.failed or 0,
        open_turns=row.open_turns or 0,
        position=row.position or 0,
        updated=row.updated,
        stamp=read_stamp(row),
    )
