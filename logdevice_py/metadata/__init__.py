"""Epoch metadata: which shards an epoch's entries are on, as the epoch store and the metadata logs keep it."""
