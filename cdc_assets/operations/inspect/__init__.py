"""`cdc-assets inspect` and `init`: what topics hold, by a sample of their records, and the files of a new project."""
