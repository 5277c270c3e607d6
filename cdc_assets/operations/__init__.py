"""What people ask about feeds (why, diff, verify, report, inspect) and do (maintenance, rebuild, replay, acknowledge)."""
