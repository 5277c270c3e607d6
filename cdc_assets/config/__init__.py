"""The feeds file: the changefeeds, their sources and their settings."""

from cdc_assets.config.file import FeedsError, feeds_path, load_feeds, validate_feeds
from cdc_assets.config.models import (
    DumpFormat,
    Feed,
    FeedsFile,
    InitialLoad,
    Kafka,
    SchemaRegistry,
    SourceComparison,
    Storage,
    TableFilter,
    TableLoad,
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
    "SourceComparison",
    "Storage",
    "TableFilter",
    "TableLoad",
    "feeds_path",
    "load_feeds",
    "split_pattern",
    "validate_feeds",
]
