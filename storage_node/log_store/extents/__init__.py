"""The store in extents: a shard's entries, written once, in one chain of blocks. See `docs/extents.md`."""
