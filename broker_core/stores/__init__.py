"""Object stores and folders of copies and backups, and credentials for all stores.

urls         the store that a URL names
objects      the interface of stores
buckets      S3, Google Cloud Storage and Azure through the library obstore
folders      a folder as a store
retry        a store that repeats failed requests for a while
rate_limit   a store with a limited write rate
credentials  credentials and endpoints for obstore, delta-rs and pyarrow

Executors receive this package, but not obstore or delta-rs, which are imported on first use.
"""
