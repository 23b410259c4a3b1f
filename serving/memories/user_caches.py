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
        """Note the engines of models that are shown texts of users, if an engine may keep texts.

        An engine is what answers a model's requests, of any class. One that keeps texts has a
        method `clear`.
        """
        engines = [getattr(model, "engine", None) for model in models]
        with self.lock:
            for engine in engines:
                if hasattr(engine, "clear"):
                    self._engines[id(engine)] = ref(engine)

    def engines(self) -> list[Any]:
        """Return the noted engines that still exist.

        They are noted by weak references, which keep no engine in existence. Dead ones are dropped.
        """
        engines: list[Any] = []
        with self.lock:
            for number, reference in list(self._engines.items()):
                engine = reference()
                if engine is None:
                    del self._engines[number]
                else:
                    engines.append(engine)
        return engines

    def cache_of(self, owner: Owner) -> UserCache:
        """Return the cache of a user; it is made if there is none.

        If there are more than `USERS`, one cache is dropped: that of the tenant with the most users
        which was used least recently. So a tenant with many users drives out its own.
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
                # If this is the new user, the caller's cache lives as long as the caller needs it.
                del self.users[oldest]
            return user_cache
