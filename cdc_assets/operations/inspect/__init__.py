"""`cdc-assets inspect` and `init`: what topics hold, told from a sample of their records, and the files to begin with."""
