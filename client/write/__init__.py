"""Write streams: appends that are retried without duplicates and without changing their order."""
