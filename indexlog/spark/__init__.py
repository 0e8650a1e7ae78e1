"""Dealing and merging on Spark: tasks write containers and files, the driver plans and commits."""
