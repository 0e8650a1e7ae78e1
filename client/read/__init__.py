"""Reading a log: the read stream machine, its parts, and what it delivers."""
