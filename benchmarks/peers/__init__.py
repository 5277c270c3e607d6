"""The work of the pipeline as people write it without the pipeline, for comparison."""
