"""Logs as Spark DataFrames: a source and a sink by Spark's Python Data Source API."""
