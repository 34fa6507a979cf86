"""`python -m penstock` is `penstock`."""

import sys

from penstock.broker_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
