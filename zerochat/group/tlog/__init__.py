"""A group's log: what stands in it in a group, and what each member does for it. The machines themselves are pure and
know no groups (`evidence/operator.py`, `witness.py`, `reader.py`).

    terms.py       who operates and who witnesses, and by what rules: said by itself where nobody else says it
    posting.py     what of ours has to be in the log, repeated until it has its place (mine.py: what waits)
    operating.py   the operator's part: what waits gets a place, and the witnesses are shown it
    witnessing.py  a witness' part: it holds the bytes, and cosigns
    following.py   everybody's part: the log is followed, and what we lack is fetched from it
    hearing.py     what members and the journal say about a log, and whose matter it is
    rounds.py      what is said again, from time to time
    adopting.py    new terms are in force, and what we are by them
    talk.py        messages about a log to one member
    lookups.py     what the machines ask the journal
"""
