"""A request to stop, seen by threads and by event loops."""

import threading
from collections.abc import Callable


class Stop:
    """Set once, by anybody."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.at_once = False
        """Nothing that is still to come can be stored, so nothing is waited for."""

    def set(self, *, at_once: bool = False) -> None:
        with self._lock:
            self.at_once |= at_once
            self._set.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        return self._set.is_set()

    def wait(self, seconds: float) -> bool:
        """Until it is set, or so long; whether it is."""
        return self._set.wait(seconds)

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when it is set, at once if it is; returns how to take that back."""
        with self._lock:
            waiting = not self._set.is_set()
            if waiting:
                self._callbacks.append(callback)
        if not waiting:
            callback()

        def forget() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return forget


class Stopped(Exception):
    """The agent's code was cancelled, because the session was asked to stop."""
