"""The promises of each table, as checks: pandera schemas where a schema expresses them, and what they found."""
