"""The group's witnessed transparency log: each member's part in it. The pure machines are in `evidence/`.

terms            who operates and who witnesses, and by which rules; proposed automatically where no member sets it
submission       our entries, resubmitted until they are in the log (pending_entries: the queue)
operator         the operator: pending entries are appended, and cosignatures requested
witness          a witness: it stores the entries' blobs, and cosigns
follower         every member: the log is followed, and missing blobs are fetched
dispatch         messages from members and answers of the journal
timers           periodic work
adoption         a new log begins with each new terms event
messages         messages about a log to one member
queries          queries to the journal
"""
