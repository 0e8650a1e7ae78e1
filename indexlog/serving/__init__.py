"""``ldindexd``: index logs over HTTP."""
