"""MySQL's types: their texts, value ranges, codes, Spark types, and the conversion of values."""
