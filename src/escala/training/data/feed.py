"""Reads samples ahead of the steps that need them, in one thread. Knows no data and no step.

One thread is enough where reading takes less than the step, and waits for storage and decoders that leave the
interpreter to others meanwhile; sources that need more hands use threads of their own.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from escala.training.data.samples import Samples, Source
from escala.training.data.share import Share

T = TypeVar("T")
AHEAD: Final = 2
"""Steps that are read before they are asked for: one to hide, one for a step that is slow to read."""


class Feed(Generic[T]):
    """What one rank learns from, step after step, read ahead; the cursor counts only what was given out.

    What goes wrong while reading is raised by the step that needed it, as it was raised there, and again if
    that step is asked for again.
    """

    def __init__(
        self,
        source: Source,
        share: Share,
        convert: Callable[[Samples], T],
        *,
        cursor: int = 0,
        ahead: int = AHEAD,
    ) -> None:
        self._source, self._share, self._convert = source, share, convert
        self._cursor = self._asked = cursor
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="escala-feed")
        self._waiting: deque[Future[T]] = deque()
        for _ in range(ahead):
            self._ask()

    @property
    def cursor(self) -> int:
        """Samples of all ranks that the steps given out so far have consumed."""
        return self._cursor

    def step(self) -> T:
        """The samples of the next step."""
        if len(self._waiting) == 0:
            self._ask()
        given = self._waiting[0].result()
        self._waiting.popleft()
        self._ask()
        self._cursor += self._share.global_batch
        return given

    def close(self) -> None:
        """Stop reading; no thread is left."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        """The feed itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _ask(self) -> None:
        first = self._share.first(self._asked)
        self._waiting.append(self._thread.submit(self._read, first))
        self._asked += self._share.global_batch

    def _read(self, first: int) -> T:
        return self._convert(self._source.batch(first, self._share.samples))
