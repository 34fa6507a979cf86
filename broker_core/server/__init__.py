"""A broker with its planes, from start to a clean stop.

- serve runs a broker in this process, `child.Broker` one in a child process.
- ports and open_files check the limits of the system; supervisor notifies systemd.
"""
