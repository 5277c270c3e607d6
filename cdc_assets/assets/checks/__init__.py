"""Asset checks: what a stage's report and the tables say, as verdicts."""
