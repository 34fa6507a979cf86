"""Run the demo: `python tests/demo`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # last: an installed `penstock` comes before the checkout

from tests.demo.program import main

sys.exit(main())
