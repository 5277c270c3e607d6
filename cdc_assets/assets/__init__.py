"""Everything that imports Dagster: one module an asset, which runs a stage and reports its result, and jobs and sensors."""
