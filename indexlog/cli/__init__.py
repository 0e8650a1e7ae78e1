"""The command line: `ldindex`."""
