"""Cases: who has withheld what, said in a group's log and judged by everybody (`evidence/README.md`).

    book.py      what is asked of a group's log, wherever it is kept
    dockets.py   what a case is about: an accusation, and what shows what it speaks of
    links.py     what is missing in a member's stream, and accusing it of that
    grounds.py   what we can say for ourselves against an accusation
    making.py    the whole case, as a file
    verdicts.py  what is told of a case, and what of it is so
    shown.py     all that as the control protocol tells it

Who looks after them without being asked is in `agent/disputes/monitor.py`, and what is kept of them in `agent/storage/disputes.py`.
"""
