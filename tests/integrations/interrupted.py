"""A store of LangGraph whose writes fail on the way; imported by calls of `agent.py`."""

from typing import Any

from sqlalchemy import Engine, event


class PutInterruptedError(Exception):
    """Raised in the place of a statement that changes a store."""


def values_after_interrupted_puts(
    store: Any, namespace: tuple[str, ...], key: str, value: Any
) -> list[Any]:
    """Put a value again and again, stopped at a later statement each time.

    Return what stands under the key after each try. The last try is not stopped.
    """
    values: list[Any] = []
    statements_left = 0

    def fail(db: Any, cursor: Any, statement: str, *rest: Any) -> None:
        nonlocal statements_left
        statements_left -= statement.split()[0] not in ("PRAGMA", "SELECT")
        if statements_left == 0:
            raise PutInterruptedError

    before = store.get(namespace, key).value
    is_done = False
    while not is_done:
        store.put(namespace, key, before)
        statements_left = len(values) + 1
        event.listen(Engine, "before_cursor_execute", fail)
        try:
            store.put(namespace, key, value)
            is_done = True
        except PutInterruptedError:
            pass
        finally:
            event.remove(Engine, "before_cursor_execute", fail)
        item = store.get(namespace, key)
        values.append(item and item.value)
    return values
