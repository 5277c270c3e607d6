"""The feeds file: which changefeeds are read, from where, and how."""

from cdc_assets.config.file import FeedsError, feeds_path, load_feeds, validated
from cdc_assets.config.models import (
    DumpFormat,
    Feed,
    FeedsFile,
    InitialLoad,
    Kafka,
    SchemaRegistry,
    Storage,
    TableLoad,
    Tables,
)
from cdc_assets.config.patterns import split_pattern

__all__ = [
    "DumpFormat",
    "Feed",
    "FeedsError",
    "FeedsFile",
    "InitialLoad",
    "Kafka",
    "SchemaRegistry",
    "Storage",
    "TableLoad",
    "Tables",
    "feeds_path",
    "load_feeds",
    "split_pattern",
    "validated",
]
