"""Child processes: `processes` is their environment and priority, `frames` their messages."""
