"""Cold copies: closed ranges of a log as Parquet files in a directory or an object store, verified, and readable without the cluster."""
