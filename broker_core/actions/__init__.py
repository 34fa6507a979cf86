"""Requests by name through any plane.

declaration           an action: its request, right, reply and handler
fields, requests      typed requests, parsed from JSON
permissions, callers  the right that each request needs, and the rights of the user
namespaces            each user's names of leases, stages and writes
schemas               JSON schemas of replies
actions               every action: a request in JSON in, a reply in JSON out
queue_actions, move_actions, message_actions, exchange_actions, stage_actions, lease_actions, archive_actions,
broker_actions, user_actions
                      the declarations, by subject
edited_messages       messages that people write, and edited copies
explain_actions       `queue.explain`, and its texts
browses, browse_plans messages of a browse, and its parts for tasks
archive_reads         messages in the archive's table
message_rows          messages as JSON, for people
traces, histories     the stays of one message in queues, and its history from them
auditing              the audit log
lease_advance         `lease.advance`
malformed_messages    messages that no reader can decode
"""
