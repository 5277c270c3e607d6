"""The gates, which decide which row events and statements a run releases, and the holds, which block single tables."""
