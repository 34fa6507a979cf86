"""D4: messages that a read looks for in the archive's table: whole blocks, and rows of others."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.service.missing_rows import MissingRows


@pytest.mark.parametrize("seed", range(6))
def test_it_tells_which_messages_it_has(seed: int) -> None:
    """D4: in every order of rows in a file."""
    random, missing, wanted = Random(seed), MissingRows(), set[int]()
    for number in random.sample(range(6), random.randint(1, 5)):
        if random.random() < 0.3:
            missing.add(number, None)
            wanted |= {*range(number * BLOCK_ROWS, (number + 1) * BLOCK_ROWS)}
        else:
            rows = sorted(random.sample(range(BLOCK_ROWS), random.choice([1, 5, 3000])))
            missing.add(number, np.array(rows))
            wanted |= {number * BLOCK_ROWS + row for row in rows}
    assert (missing.first, missing.last) == (min(wanted), max(wanted))
    for count in (0, 1, 50, 5000):
        some = random.sample(sorted(wanted), min(count, len(wanted))) + random.sample(range(7 * BLOCK_ROWS), count)
        random.shuffle(some)
        assert missing.mask(np.array(some, np.int64)).tolist() == [row in wanted for row in some]
