"""Streams as Spark DataFrames: ``format("logdevice").load("stream:/streams/orders")``."""
