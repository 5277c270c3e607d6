"""What stands beside the pipeline: the same rows, written as people write them without it."""
