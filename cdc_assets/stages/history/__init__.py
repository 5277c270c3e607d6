"""The stage that applies released changes to the history tables."""
