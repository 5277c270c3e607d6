"""The object stores that places may lie in, one module each: what is special about one is there, and nowhere else."""

from cdc_assets.config.locations import scheme_of
from cdc_assets.stores.azure import AZURE
from cdc_assets.stores.base import ObjectStore
from cdc_assets.stores.gcs import GCS
from cdc_assets.stores.s3 import S3

OBJECT_STORES: tuple[ObjectStore, ...] = (S3, GCS, AZURE)
_BY_SCHEME = {scheme: store for store in OBJECT_STORES for scheme in store.schemes}


def store_of(place: str) -> ObjectStore | None:
    """The object store that has a place; None of a local folder and of HDFS."""
    return _BY_SCHEME.get(scheme_of(place))


__all__ = ["AZURE", "GCS", "OBJECT_STORES", "S3", "ObjectStore", "store_of"]
