"""The type checks: pandera models of the type mappings, and the rules of each protocol."""
