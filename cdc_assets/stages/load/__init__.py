"""The stage that plans initial loads, and the release of their rows."""
