"""Find the users whose stored memories a command works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    from ..memory.store.owner import Owner
    from ..memory.store.store import Store


def find_owners(store: Store, tenant: str | None, user: str | None) -> list[Owner]:
    """Return the users of a store.

    Args:
        store: The store.
        tenant: The tenant whose users are returned; None for all tenants.
        user: The name of the users that are returned; None for all names.

    Raises:
        UserError: There is no user of the name.
    """
    owners = [status.owner for status in store.users.list_all(tenant, user)]
    if user is not None and not owners:
        raise UserError(f"no user {user!r} in {store.url}; `mempiler memories list` shows all")
    return owners


def find_owner(store: Store, tenant: str, user: str) -> Owner:
    """Return the user of a name in a tenant.

    Raises:
        UserError: There is no such user.
    """
    # A name is unique within a tenant, so there is exactly one.
    owners = find_owners(store, tenant, user)
    return owners[0]
