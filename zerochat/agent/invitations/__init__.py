"""Invitations from pasted text and from pictures of QR codes."""
