"""An index log: what was done to the documents of many search indexes, kept for ever, and read index by index."""
