"""The Spark session, checks of the cluster, and the functions that run in the JVM (`native/`)."""
