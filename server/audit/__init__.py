"""The audit log of a node: who did what to which log, from where, and with what outcome."""
