"""A node's replica of the log tree, and what nodes do for it: snapshots, and the end of logs that are removed."""
