"""Which events are released: watermarks, the release window, repeats, late events."""
