"""What everything else uses: positions, ids, status codes, entries, time, and how things are declared."""
