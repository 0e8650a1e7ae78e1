"""The log tree: directories and groups of logs that are made at run time, as a replicated state and as what processes look up in it."""
