"""`python -m broker_core` is `penstock`."""

import sys

from broker_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
