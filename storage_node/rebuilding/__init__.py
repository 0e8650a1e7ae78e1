"""Re-replicating what lost shards held, and emptying shards: donors, and those that take copies from them."""
