"""The commit loop: the requests of all links become few commands and one write, and answers wait for the disk.

commit_loop           one commit, from the requests of links to the answers that leave
requests, parties     what links hand in; the links as the loop sees them
batch                 what was handed in since the last commit
gate                  when a commit runs
effects, syncs        answers that wait for the disk; requests to write the log
confirmations         which messages are in their queue, and which are refused
interest, acquisitions which link is asked for work next, and what each link acquires
evaluation            evaluation of selectors, in a thread
exchanges             messages for an exchange
offers                messages that are stored only if a link takes them immediately
transport, acceptor   the socket of a connection; listening sockets
"""
