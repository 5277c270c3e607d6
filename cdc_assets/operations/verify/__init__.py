"""Whether a history holds what its source holds: `compare.verify_history` compares it with the source's own rows."""
