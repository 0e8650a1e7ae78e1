"""The manifest: which files and slices count, as a state that a log of commands amounts to."""
