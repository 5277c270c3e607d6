"""Spark: the session, the jars that it needs, and the few functions that run in the JVM (`native/`)."""
