"""Ending epochs: seals, digests for recovery, CLEAN, and purging by shards that missed a recovery."""
