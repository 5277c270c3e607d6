"""`python -m cdc_assets` runs the commands of `cdc-assets`."""

import sys

from cdc_assets.cli import main

if __name__ == "__main__":
    sys.exit(main())
