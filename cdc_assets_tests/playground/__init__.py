"""`make playground`: a shop whose tables change, and the pipeline that follows them, on this machine."""
