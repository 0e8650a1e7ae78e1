"""Keeping data sound: the scrubber finds what is damaged or missing, repair fixes what this shard is to hold."""
