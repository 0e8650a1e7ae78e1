"""Streams: logs with names, in namespaces, cut into segments; above the client."""
