"""Initial loads: the rows of a dump that a history begins with."""
