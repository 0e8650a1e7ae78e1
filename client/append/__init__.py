"""Direct appends: coalescing, routing to the sequencer, and what may be retried."""
