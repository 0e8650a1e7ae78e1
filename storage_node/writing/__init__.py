"""Taking copies of entries: STORE, the writes of a turn, and the entries taken last."""
