"""The cluster file: nodes and their locations, the log tree with its attributes, replication properties."""
