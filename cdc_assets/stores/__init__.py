"""The supported object stores: each has one module, which holds everything that is particular to it."""

from cdc_assets.config.locations import scheme_of
from cdc_assets.stores.azure import AZURE
from cdc_assets.stores.base import ObjectStore
from cdc_assets.stores.gcs import GCS
from cdc_assets.stores.s3 import S3

OBJECT_STORES: tuple[ObjectStore, ...] = (S3, GCS, AZURE)
_BY_SCHEME = {scheme: store for store in OBJECT_STORES for scheme in store.schemes}


def store_of(location: str) -> ObjectStore | None:
    """Return the object store of a location; None for a local folder and for HDFS."""
    return _BY_SCHEME.get(scheme_of(location))


__all__ = ["AZURE", "GCS", "OBJECT_STORES", "S3", "ObjectStore", "store_of"]
