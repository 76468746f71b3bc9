"""How much a live reader reads at once."""

from helix_sessions.stream.followers import BATCH, BATCH_CHARACTERS, FIRST_BATCH, Entry, next_batch


def entries(count: int, size: int) -> list[Entry]:
    return [Entry((seq, "note", "x" * size, None, None, None)) for seq in range(count)]


def test_small_events_are_read_in_ever_larger_batches():
    limit, seen = FIRST_BATCH, []
    for _ in range(6):
        seen.append(limit)
        limit = next_batch(limit, entries(limit, 10))

    assert seen == [16, 32, 64, 128, BATCH, BATCH]


def test_a_batch_that_was_not_full_says_nothing_about_the_next():
    assert next_batch(64, entries(3, 10)) == 64
    assert next_batch(64, []) == 64


def test_large_events_are_read_in_small_batches():
    tenth = BATCH_CHARACTERS // 10
    limit = next_batch(FIRST_BATCH, entries(FIRST_BATCH, tenth))

    assert limit == 10
    assert next_batch(limit, entries(limit, 10 * tenth)) == 1
    assert next_batch(1, entries(1, 50 * tenth)) == 1


def test_after_large_events_it_recovers():
    assert next_batch(1, entries(1, 10)) == 2
