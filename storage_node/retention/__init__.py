"""Keeping data as long as it is wanted: trim points, retention, and logs that are removed."""
