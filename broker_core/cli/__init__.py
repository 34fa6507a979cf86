"""The `penstock` command line.

main                                  from the command line to a function, from an error to a sentence and an exit code
arguments/                            every command, flag and help text
serve, send, receive                  the commands of these names
queue, moves, exchange, lease, stage,
status                                commands that ask the broker over Flight
archive                               `penstock archive`; the archiver's process
http                                  the process of the HTTP plane
backup                                `penstock backup`, `restore` and `check`, which work on a data directory
work                                  `penstock work`: functions of a module that handle messages
connection, top, definitions          commands for operators, that ask the broker, too
conf                                  `penstock conf`, which prints the files of conf/
doctor                                looks for what may be wrong, here and with a broker
completion                            what makes a shell complete the command line
user                                  `penstock user` and `penstock permit`, which change the users file
calls, amqp_calls, login              connections to a broker, by Flight and by AMQP; how they log in
several                               several brokers at once: what `--url a,b` adds up
pairs, show                           NAME=VALUE; tables for people, JSON for programs
stdout                                messages as lines, into a pipe as they are read

Exit codes:
  0  done
  1  refused: the request is wrong, or no longer allowed
  2  usage: the command line itself is wrong (also a wrong value or config file)
  3  unreachable: no broker answers there, or it went away
  4  storage: the broker's disk failed, or what is on it is damaged or locked
  130  interrupted with Ctrl-C
"""

from __future__ import annotations

from .main import main

__all__ = ["main"]
