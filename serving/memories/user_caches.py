"""What a process keeps of the users of one store."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any
from weakref import ReferenceType, ref

from ...memory.store.owner import Owner
from ..worker.failure_counts import FailureCounts
from .user_cache import UserCache

USERS = 320
"""Users of a store of whom something is kept; of each tenant those used last."""


class UserCaches:
    """What a process keeps of the users of one store."""

    def __init__(self) -> None:
        self.users = OrderedDict[Owner, UserCache]()
        self.forget_count = 0
        """How often anybody had been forgotten in the store when this process last looked."""
        self.lock = threading.Lock()
        self.failures = FailureCounts()
        self._engines: dict[int, ReferenceType[Any]] = {}
        """Engines by their ids; some cannot be hashed."""

    def note_engines(self, models: Sequence[Any]) -> None:
        """Note what is shown texts of users, and may keep them."""
        engines = [getattr(model, "engine", None) for model in models]
        with self.lock:
            for engine in engines:
                if hasattr(engine, "clear"):
                    self._engines[id(engine)] = ref(engine)

    def engines(self) -> list[Any]:
        """Return the engines of `note_engines` that are still there."""
        engines: list[Any] = []
        with self.lock:
            for number, reference in list(self._engines.items()):
                engine = reference()
                if engine is None:
                    del self._engines[number]
                else:
                    engines.append(engine)
        return engines

    def of(self, owner: Owner) -> UserCache:
        """Return what is kept of a user, from now on.

        If there are too many users, the one of the tenant with the most users goes who was used
        least recently.
        """
        with self.lock:
            if owner not in self.users:
                self.users[owner] = UserCache()
            user_cache = self.users[owner]
            self.users.move_to_end(owner)
            if len(self.users) > USERS:
                user_counts = Counter(user.tenant for user in self.users)
                largest_tenant = user_counts.most_common(1)[0][0]
                oldest = next(user for user in self.users if user.tenant == largest_tenant)
                del self.users[oldest]
            return user_cache
