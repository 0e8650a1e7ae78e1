"""The ground that everything stands on: positions, ids, status codes, entries, time, and how things are declared."""
