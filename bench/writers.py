"""Throughput: processes that commit steps to sessions of their own, all at once."""

import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
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


@dataclass(frozen=True)
class _Writer:
    process: BaseProcess
    pipe: Connection

    def receive(self) -> float:
        if not self.pipe.poll(PATIENCE):
            raise TimeoutError("A writer does not answer.")
        answer: float = self.pipe.recv()
        return answer


def measure_writers(arena: Arena, scale: Scale, results: Results) -> None:
    """Steps per second of 1, 4, 16 processes."""
    kinds = [*CORE, *(installed_peers() if scale.peers_as_writers else [])]
    most = {kind: max(scale.writers if kind in CORE else scale.peers_as_writers) for kind in kinds}
    writers = {kind: [_start(kind, arena.place) for _ in range(most[kind])] for kind in kinds}
    try:
        for number in scale.writers:
            able = [kind for kind in kinds if kind in CORE or number in scale.peers_as_writers]
            rates: dict[str, list[float]] = {kind.name: [] for kind in able}
            for _ in range(scale.writer_rounds):
                for kind in able:
                    rates[kind.name].append(_rate(writers[kind][:number], scale.writer_seconds))
            results.add_numbers("throughput", f"{number} writers", "steps/s", rates)
    finally:
        for some in writers.values():
            for writer in some:
                writer.process.terminate()
                writer.process.join()


def _start(kind: type[Contestant], place: Place) -> _Writer:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_write, args=(kind.name, place, theirs), daemon=True)
    process.start()
    return _Writer(process, ours)


def _rate(writers: list[_Writer], seconds: float) -> float:
    for writer in writers:
        writer.pipe.send(seconds)
    for writer in writers:
        writer.receive()  # it is ready
    for writer in writers:
        writer.pipe.send(None)  # go
    return sum(writer.receive() for writer in writers)


def _write(name: str, place: Place, pipe: Connection) -> None:
    import django

    django.setup()
    contestant = BY_NAME[name](place)
    steps = payload.steps()
    while True:
        seconds = pipe.recv()
        session_id = new_session(contestant)
        for _ in range(WARM_UP_STEPS):
            contestant.step(session_id, next(steps))
        pipe.send(0.0)
        pipe.recv()
        start, done = perf_counter(), 0
        while (elapsed := perf_counter() - start) < seconds:
            contestant.step(session_id, next(steps))
            done += 1
        pipe.send(done / elapsed)
