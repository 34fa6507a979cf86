"""The event loop, and what its sockets brought together: few commands, one journal write, effects that wait for the disk.

server, limits        the loop's thread, its listeners and clock; what one peer may have and take
accepting             listening sockets; what happens when the process has no file descriptor left
passes                one pass: from what links handed in to commands, and to what leaves
batch, effects, gate  what came since the last pass; what is told when the disk has it; when a pass runs
writing, deadlines    when the disk writes; timers that are taken back
interest, acquiring   who is told that there is work, and what each link acquires
selecting             selectors that nobody has evaluated yet
outcomes              outcomes of receivers, until they are carried out
exchanges             messages for an exchange: one command for all of a pass
immediate, offers     messages that are stored only if a link takes them; the links that can
locks                 deliveries that were held too long
"""
