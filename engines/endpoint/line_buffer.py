r"""Cut a stream of bytes into lines.

>>> from mempiler.engines.endpoint.line_buffer import LineBuffer
>>> buffer = LineBuffer()
>>> buffer.add(b"data: 1\nda"), buffer.add(b"ta: 2\n"), buffer.rest
([b'data: 1\n'], [b'data: 2\n'], b'')
"""

from __future__ import annotations


class LineBuffer:
    """Put together the lines of a text that comes in chunks."""

    def __init__(self) -> None:
        self.rest = b""
        """What came behind the last newline."""

    def add(self, chunk: bytes) -> list[bytes]:
        """Add a chunk, and return the lines that it completes, with their newlines."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        return [line + b"\n" for line in lines]
