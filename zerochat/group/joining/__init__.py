"""Joining a group: invitation, DID exchange, join request, admission, welcome, member connections."""
