"""The owner of a memory: a user of a tenant."""

from __future__ import annotations

from dataclasses import dataclass

from ..names import valid_name


@dataclass(frozen=True, order=True)
class Owner:
    """A user of a tenant: the one to whom a memory belongs.

    Both names are checked (`valid_name`). They are plain data: no path, table or query is ever made
    from them.

    Raises:
        UserError: One of them is no valid name.
    """

    user: str
    tenant: str = "default"

    def __post_init__(self) -> None:
        object.__setattr__(self, "user", valid_name("user", self.user))
        object.__setattr__(self, "tenant", valid_name("tenant", self.tenant))

    @classmethod
    def stored(cls, user: str, tenant: str) -> Owner:
        """Return an owner whose names come from a store, without checking them.

        A store may hold names that today's check would refuse. They must not prevent that its users
        are read.
        """
        # This skips `__init__`, and with it the checks of `__post_init__`.
        owner = object.__new__(cls)
        owner.__dict__.update(user=user, tenant=tenant)
        return owner
