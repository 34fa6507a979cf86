"""Print the folder of the jobs, for spark-submit: `spark-submit "$(python -m penstock.jobs)/ingest.py" …`."""

from pathlib import Path

print(Path(__file__).parent)
