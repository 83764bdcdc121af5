"""Bulk reading of logs: merge files into one time-ordered log and survey it. No predictions, no servers."""
