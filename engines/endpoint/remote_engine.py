"""What all engines have in common whose answers come from elsewhere."""

from __future__ import annotations


class RemoteEngine:
    """An engine whose answers come from elsewhere.

    The usage that it reports is not believed without a check.
    """

    @property
    def digest(self) -> str | None:
        """A digest that tells its endpoint from others with a model of the same name.

        None where the name of the model says which endpoint it is.
        """
        return None
