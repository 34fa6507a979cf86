"""Requests by name through any plane. Each action is declared once: its request, its right, its reply and its handler.

declaration           `Declaration`, and the decorator `action`
fields                typed requests, parsed from JSON
requests              fields that several requests share; tickets and puts
permissions           the right that each request needs
callers               the user of a call and the rights of the user
namespaces            each user's names of leases, stages and writes
schemas               JSON schemas of replies
actions               `Actions`: a request in JSON in, a reply in JSON out

queue_actions, move_actions, exchange_actions, stage_actions, lease_actions, archive_actions, broker_actions
                      the declarations, by subject
browses               messages of a browse, from the journal and the archive
browse_plans          the parts of a browse, for tasks
archive_reads         messages in the archive's table
message_rows          messages as JSON, for people
lease_advance         `lease.advance`: settle the finished batches, acquire the next one
malformed_messages    messages that no reader can decode, set aside
hints                 hints about names in a selector that may be meant as fields
"""
