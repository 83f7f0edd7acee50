"""Relationships outside of any group: with mediators, with agents of other makers, and what anybody may ask."""
