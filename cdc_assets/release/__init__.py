"""Which events are released: one interface, three gates behind it."""
