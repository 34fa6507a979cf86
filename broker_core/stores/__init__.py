"""Object stores and folders of copies and backups, and the credentials for every store.

urls         the store that a URL names
objects      `ObjectStore`: the requests to a store
buckets      S3, Google Cloud Storage and Azure through the library obstore
folders      a folder as a store
retry        a store that repeats failed requests for a while
rate_limit   a store with a limited write rate
credentials  credentials and endpoints, for the libraries obstore, delta-rs and pyarrow

Executors receive this package. They have pyarrow, but not obstore or delta-rs, so those are imported on first use.
"""
