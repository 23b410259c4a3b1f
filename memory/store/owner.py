"""The owner of a memory: a user of a tenant."""

from __future__ import annotations

from dataclasses import dataclass

from ..names import valid_name


@dataclass(frozen=True, order=True)
class Owner:
    """The user of a tenant whose memory it is.

    Both are names (`valid_name`) and plain data: no path, table or query is ever made from them.

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
        """Return an owner that a store has, without a check: an old name must not hide a store."""
        owner = object.__new__(cls)
        owner.__dict__.update(user=user, tenant=tenant)
        return owner
