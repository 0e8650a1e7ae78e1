"""ldquery: SQL over the live cluster."""
