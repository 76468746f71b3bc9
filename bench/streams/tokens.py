"""What tokens cost that survive a reload: steps beside streams of a process that keeps what it says.

Three rounds in turn: nothing is said; everything is said, and nothing kept; everything is said and kept.
"""

import multiprocessing
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.databases import Arena
from bench.results import Results
from bench.scale import Scale
from bench.writers import PATIENCE, Writer, rate

SECTION = "kept tokens"
STREAMS, PER_SECOND = 200, 50
TOKENS = 500
"""Of a message: ten seconds."""
WRITERS = 4
NONE, SAID, KEPT = "no streams", "streams, not kept", "streams, kept"
MODES = (NONE, SAID, KEPT)
SETTLING_SECONDS = 1.0
"""Before a round counts: streams are under way, and what the round before left is written."""


def measure_tokens(arena: Arena, scale: Scale, results: Results) -> None:
    """Steps per second of some writers, without and with the streams beside them."""
    writers = [Writer(arena.place) for _ in range(WRITERS)]
    speaker = _Speaker()
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    spoken: dict[str, list[float]] = {SAID: [], KEPT: []}
    cores: dict[str, list[float]] = {SAID: [], KEPT: []}
    rounds = scale.writer_rounds * 4
    try:
        rate(writers, "ours", 1.0)
        for number in range(rounds):
            for place in range(len(MODES)):
                mode = MODES[(number + place) % len(MODES)]
                if mode != NONE:
                    speaker.begin(mode)
                time.sleep(SETTLING_SECONDS)
                rates[mode].append(rate(writers, "ours", scale.writer_seconds))
                if mode != NONE:
                    tokens, busy = speaker.end()
                    spoken[mode].append(tokens)
                    cores[mode].append(busy)
    finally:
        speaker.stop()
        for writer in writers:
            writer.end()
    beside = f"writers: {WRITERS}"
    results.add_numbers(SECTION, beside, "steps/s", rates, base=NONE)
    keeping = {KEPT: rates[KEPT], SAID: rates[SAID]}
    results.add_numbers(SECTION, f"{beside}, keeping alone", "steps/s", keeping, base=SAID)
    results.add_numbers(SECTION, f"{STREAMS} streams", "tokens/s", spoken, base="")
    results.add_numbers(SECTION, "CPU of the process that speaks", "cores", cores, base="")


class _Speaker:
    """A process that says many messages at once, as a worker does whose models stream."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_speak, args=(theirs,), daemon=True)
        self._process.start()

    def begin(self, mode: str) -> None:
        self._pipe.send(mode)

    def end(self) -> tuple[float, float]:
        """Tokens a second, and how much of a core they took."""
        self._pipe.send(NONE)
        if not self._pipe.poll(PATIENCE):
            raise TimeoutError("The speaker does not answer.")
        tokens, busy = self._pipe.recv()
        return float(tokens), float(busy)

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()


def _speak(pipe: Connection) -> None:
    import django

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    django.setup()
    from helix_sessions.store.transcript import fragments

    write = fragments.write
    while True:
        mode = pipe.recv()
        fragments.write = write if mode == KEPT else _keep_nothing
        began, busy, said = time.perf_counter(), time.process_time(), 0
        streams = [_Stream(number) for number in range(STREAMS)]
        while not pipe.poll():
            elapsed = time.perf_counter() - began
            due = int(elapsed * STREAMS * PER_SECOND)
            for number in range(said, due):
                streams[number % STREAMS].speak()
            said = due
            time.sleep(0.002)
        pipe.recv()
        elapsed = time.perf_counter() - began
        pipe.send((said / elapsed, (time.process_time() - busy) / elapsed))
        for stream in streams:
            stream.finish()


def _keep_nothing(using: str, batches: Any) -> None:
    pass


class _Stream:
    """The messages of one session, one after the other."""

    def __init__(self, number: int) -> None:
        self._session_id = f"speaks-{number}"
        self._left = TOKENS * (number + 1) // STREAMS  # so that not all messages end at once
        self._message = self._next()

    def _next(self) -> Any:
        from helix_sessions.store.transcript.fragments import MessageStream

        return MessageStream("default", self._session_id, run_id="run", turn_id="turn", after_seq=1)

    def speak(self) -> None:
        self._message.publish({"text": " token"})
        self._left -= 1
        if self._left <= 0:
            self.finish()
            self._message, self._left = self._next(), TOKENS

    def finish(self) -> None:
        """As the commit of a message does."""
        from helix_sessions.models import FragmentBatch

        if self._message.close():
            FragmentBatch.objects.filter(session_id=self._session_id).delete()
