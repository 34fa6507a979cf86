"""A broker with its planes, from start to a clean stop.

serve        runs one in this process
process      `Broker`: one in a child process, for programs, notebooks and tests
ports        ports to listen at: in use by whom
supervisor   tells systemd when it is ready, reloads and stops
open_files   raises the limit of open files; how many connections fit
"""
