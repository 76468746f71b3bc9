"""How much is measured: everything, or what five minutes allow."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """The sizes of one run."""

    rounds: int
    histories: tuple[int, ...]
    peer_histories: tuple[int, ...]
    long_history: int
    small_list: int
    large_list: int
    writers: tuple[int, ...]
    writer_rounds: int
    writer_seconds: float
    peers_as_writers: tuple[int, ...]
    resource_rounds: int
    resource_steps: int
    growth_steps: int
    streams: tuple[int, ...]


FULL = Scale(
    rounds=30,
    histories=(0, 100, 1_000, 5_000, 50_000),
    peer_histories=(0, 100, 1_000, 5_000),
    long_history=5_000,
    small_list=10_000,
    large_list=1_000_000,
    writers=(1, 4, 16),
    writer_rounds=4,
    writer_seconds=3.0,
    peers_as_writers=(1, 4),
    resource_rounds=5,
    resource_steps=300,
    growth_steps=1_000,
    streams=(50, 200, 1_000, 5_000),
)

QUICK = Scale(
    rounds=14,
    histories=(0, 100, 1_000, 50_000),
    peer_histories=(1_000,),
    long_history=5_000,
    small_list=10_000,
    large_list=100_000,
    writers=(1, 16),
    writer_rounds=3,
    writer_seconds=1.5,
    peers_as_writers=(),
    resource_rounds=3,
    resource_steps=100,
    growth_steps=200,
    streams=(200, 1_000),
)
