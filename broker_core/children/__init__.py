"""Child processes of this package: `processes` is their environment, `frames` the messages between them and a broker."""
