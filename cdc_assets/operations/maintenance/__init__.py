"""Maintenance of a feed's tables: `files` compacts and vacuums them, `retention` deletes rows that nothing needs."""
