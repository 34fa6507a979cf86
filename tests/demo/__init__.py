"""The demo, `./dev demo`: flights go through a queue into Delta, exactly once, while Spark and the broker are killed.

- program: its command line, and the run with a Penstock broker.
- kills: sending, reading under kills, and the comparison, for any broker.
- foreign_broker: the run with ActiveMQ Artemis.
- lost_machine: its last step: a broker loses its machine and is restored from its copy.
- output: numbered steps, facts and checks on stdout.

The flights are `penstock.jobs.flights`, which the notebooks use as well. Nothing here is in the wheel.
"""
