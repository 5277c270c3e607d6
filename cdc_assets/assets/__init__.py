"""The software-defined assets: one module a stage, which tells Dagster what a run of the core's stage did."""
