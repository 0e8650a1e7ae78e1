"""The store on RocksDB: all that knows of RocksDB, and the process that warms the page cache."""

from storage_node.log_store.rocksdb.store import RocksLogStore as RocksLogStore
