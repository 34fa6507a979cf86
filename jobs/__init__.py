"""Jobs for spark-submit (`ingest`, `replay`), the demo, and the session they share."""
