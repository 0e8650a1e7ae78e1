"""The epoch store: small versioned cells, changed only by compare-and-set, that give each activation of a sequencer its own epoch."""
