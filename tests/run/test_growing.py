"""Arrays that grow: the same rows as a concatenation, and few copies."""

import numpy as np

from adamab.run.samples import GrowingRows


def test_rows_are_those_of_a_concatenation_and_copied_a_few_times_only():
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((1 + n % 3, 4)).astype(np.float32) for n in range(2000)]
    growing, rooms = GrowingRows(np.zeros((0, 4), np.float32)), []
    for part in parts:
        rows = growing.add(part)
        room = rows.base
        if not rooms or room is not rooms[-1]:
            rooms.append(room)
    np.testing.assert_array_equal(rows, np.concatenate(parts))
    assert rows.flags.c_contiguous
    assert len(rooms) < 80
    assert len(rooms[-1]) <= 1.13 * len(rows)


def test_what_was_handed_out_and_what_was_handed_in_stays():
    first = np.arange(3)
    growing = GrowingRows(first)
    seen = growing.add(np.array([7]))
    assert growing.add(np.array([8, 9])).tolist() == [0, 1, 2, 7, 8, 9]
    assert (first.tolist(), seen.tolist()) == ([0, 1, 2], [0, 1, 2, 7])
