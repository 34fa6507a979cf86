"""A broker with its planes, from start to a clean stop.

- serve: runs a broker in this process.
- process: `Broker`, a broker in a child process, for programs, notebooks and tests.
- ports: checks that ports are free, and finds the process that uses one.
- supervisor: notifies systemd of the start, reloads and the stop.
- open_files: raises the limit of open files, and counts the connections that fit.
"""
