"""Nearby: finds members on the networks of this machine, so that a group works without internet.

An agent multicasts a key of the day. Two agents that hear each other open a session and intersect, in private, the
hosts that they know; a member that both find is then dialled at its address there. The core takes no part: a link is
authenticated by the server key that it always had, and the address is a further place to try.
"""
