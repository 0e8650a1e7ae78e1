"""The event log on a node: its replica of the state, and who writes events."""
