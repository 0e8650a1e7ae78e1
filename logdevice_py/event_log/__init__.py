"""What happened to shards: events of an internal log, and the state that they amount to."""
