"""Fetch the jars that Spark needs, for an image: `python -m cdc_assets.stores [SCHEME ...]`."""

import argparse
import sys
from pathlib import Path

from cdc_assets.stores import store_of
from cdc_assets.stores.jars import copy_native_jars, spark_jars


def main() -> int:
    """Fetch Spark's jars and those of the given stores, compile `spark/native/`, and copy its jars if asked to."""
    parser = argparse.ArgumentParser(prog="python -m cdc_assets.stores", description=__doc__)
    parser.add_argument("schemes", nargs="*", metavar="SCHEME", help="of object stores, whose jars are fetched too")
    parser.add_argument("--copy-native", type=Path, metavar="FOLDER", help="copy the jars of native/ into this folder")
    options = parser.parse_args()
    spark_jars()
    for scheme in options.schemes:
        store = store_of(f"{scheme}://")
        if store is None:
            parser.error(f"{scheme}: allowed are s3, gs, abfss")
        store.jars()
    if options.copy_native:
        copy_native_jars(options.copy_native)
    return 0


if __name__ == "__main__":
    sys.exit(main())
