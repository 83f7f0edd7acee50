"""Implementation of `zerochat bot`: writing and running bots, and the bots of a profile."""
