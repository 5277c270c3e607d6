"""The stage that releases deduplicated changes, in the source's order."""
