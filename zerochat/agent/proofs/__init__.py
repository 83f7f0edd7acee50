"""Proof files of signed messages, and views of their signatures."""
