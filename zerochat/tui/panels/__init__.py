"""Panels around the message pane: side lists, bars above and below."""
