"""What the person who runs a feed does by hand: maintenance of its tables, and deriving them again."""
