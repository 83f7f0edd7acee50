"""Bots that are useful by themselves: `zerochat bot new NAME --example ping` writes a copy to begin with.

ping      says whether everybody hears everybody
ci        tells a group how builds went, from files that a CI job writes
reminder  reminds of what it was asked to, and of the day's beginning
relay     relays what a command prints, and how it ended
"""
