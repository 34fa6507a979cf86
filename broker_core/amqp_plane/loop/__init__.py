"""The event loop, and what its sockets brought together: few commands, one journal write, effects that wait for the disk.

server                the loop's thread, its listeners, limits and clock
turn, writing         commands, effects, and when the disk writes
interest, acquiring   who is told that there is work, and what each link acquires
selecting             selectors that nobody has evaluated yet
outcomes              what receivers said of messages, until it is carried out
exchanges             messages for an exchange: one command for all of a pass
immediate             messages for now or never
locks                 deliveries that were held too long
"""
