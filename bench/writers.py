"""Throughput: processes that commit steps to sessions of their own, all at once."""

import multiprocessing
import signal
from multiprocessing.connection import Connection
from time import perf_counter

from bench import payload
from bench.contestants import BY_NAME, CORE, installed_peers
from bench.contestants.base import Contestant
from bench.databases import Arena
from bench.operations import new_session
from bench.place import Place
from bench.results import Results
from bench.scale import Scale

WARM_UP_STEPS = 20
PATIENCE = 120.0


def measure_writers(arena: Arena, scale: Scale, results: Results) -> None:
    """Steps per second of one process and of many."""
    writers = [Writer(arena.place) for _ in range(max(scale.writers))]
    try:
        for number in scale.writers:
            peers = installed_peers() if number in scale.peers_as_writers else []
            rates: dict[str, list[float]] = {kind.name: [] for kind in (*CORE, *peers)}
            for _ in range(scale.writer_rounds):
                for name, measured in rates.items():
                    measured.append(rate(writers[:number], name, scale.writer_seconds))
            results.add_numbers("throughput", f"writers: {number}", "steps/s", rates)
    finally:
        for writer in writers:
            writer.end()


def rate(writers: list["Writer"], name: str, seconds: float) -> float:
    for writer in writers:
        writer.tell(name)
    for writer in writers:
        writer.answer()  # it is ready
    for writer in writers:
        writer.tell(seconds)
    return sum(writer.answer() for writer in writers)


class Writer:
    """A process that commits steps as the contestant it is told to be."""

    def __init__(self, place: Place) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_write, args=(place, theirs), daemon=True)
        self.process.start()

    def tell(self, what: str | float) -> None:
        self.pipe.send(what)

    def answer(self) -> float:
        if not self.pipe.poll(PATIENCE):
            raise TimeoutError("A writer does not answer.")
        return float(self.pipe.recv())

    def end(self) -> None:
        self.process.terminate()
        self.process.join()


def _write(place: Place, pipe: Connection) -> None:
    import django

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal told the parent as well, which ends us
    django.setup()
    contestants: dict[str, Contestant] = {}
    steps = payload.steps()
    while True:
        name = pipe.recv()
        if name not in contestants:
            contestants[name] = BY_NAME[name](place)
        contestant = contestants[name]
        session_id = new_session(contestant)
        for _ in range(WARM_UP_STEPS):
            contestant.step(session_id, next(steps))
        pipe.send(0.0)
        seconds = pipe.recv()
        start, done = perf_counter(), 0
        while (elapsed := perf_counter() - start) < seconds:
            contestant.step(session_id, next(steps))
            done += 1
        pipe.send(done / elapsed)
