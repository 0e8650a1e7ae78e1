"""The configuration that the epoch store keeps, as a node follows and changes it."""
