"""Why a row looks as it does: `explain.explain_row` returns the life of one key from all that a feed's tables hold of it."""
