r"""The words of one answer that were sent to its reader while the model wrote them.

What was sent cannot be taken back. So a call that is repeated goes on where it says the same again,
and `remainder` refuses an answer that begins otherwise.

Example:
    stream = AnswerStream(send=print)
    on_piece = stream.begin_attempt("headers")
    on_piece("[[ ## answer ## ]]\nTo Lis")     # prints "To Lis"; then the connection breaks
    on_piece = stream.begin_attempt("headers")
    on_piece("[[ ## answer ## ]]\nTo Lisbon")  # prints "bon"
    stream.remainder("To Lisbon in May")        # " in May"
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import AnswerChangedError
from ..reading.layouts import Layout
from ..reading.partial import PartialAnswer

ANSWER = "answer"
"""The output of a task that is sent."""


class AnswerStream:
    """The words of one answer that were sent to its reader so far.

    Args:
        send: Sends further words to the reader. It is called in the thread that receives them from
            the model.
    """

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._sent_parts: list[str] = []

    def begin_attempt(self, layout: Layout) -> Callable[[str], None]:
        """Begin another attempt of the model at the answer, as when a broken call is repeated.

        Args:
            layout: How the prompt asks for the outputs, such as "headers" or "json".

        Returns:
            A function to call with each piece of the completion as it comes. It sends the words of
            the answer in it that no earlier attempt has sent.
        """
        return _Attempt(self, layout).add_piece

    def send(self, words: str) -> None:
        """Send further words of the answer."""
        self._sent_parts.append(words)
        self._send(words)

    @property
    def sent(self) -> str:
        """All words that were sent."""
        return "".join(self._sent_parts)

    def remainder(self, answer: str) -> str:
        """Return the end of an answer that was not sent yet.

        Args:
            answer: The whole answer.

        Raises:
            AnswerChangedError: The words that were sent are not the beginning of this answer.
        """
        if not answer.startswith(self.sent):
            raise AnswerChangedError(
                "the answer is another one than its beginning, which was sent already; ask again"
            )
        return answer.removeprefix(self.sent)


class _Attempt:
    """One attempt of a model at an answer.

    Args:
        stream: Takes the words of the answer that were not sent before.
        layout: How the prompt asks for the outputs.
    """

    def __init__(self, stream: AnswerStream, layout: Layout) -> None:
        self._stream = stream
        self._partial_answer = PartialAnswer(ANSWER, layout)
        self._words_to_repeat = stream.sent
        """Words of earlier attempts that this one has to say again before it says anything new."""

    def add_piece(self, piece: str) -> None:
        """Add the next piece of the model's completion, and send the words in it that are new.

        Words that an earlier attempt has sent are not sent again. If this attempt says something
        else in their place, nothing more of it is sent.
        """
        words = self._partial_answer.add_piece(piece)
        repeated_length = min(len(words), len(self._words_to_repeat))
        if words[:repeated_length] != self._words_to_repeat[:repeated_length]:
            # The words of another answer make no sense behind those that were sent.
            self._partial_answer.stop()
            return

        self._words_to_repeat = self._words_to_repeat[repeated_length:]
        new_words = words[repeated_length:]
        if new_words:
            self._stream.send(new_words)
