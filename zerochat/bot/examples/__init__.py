"""Ready-made bots: `zerochat bot new NAME --example ping` writes a copy.

ping      tests delivery
ci        reports builds, from files that a CI job writes
reminder  sends reminders and a morning greeting
relay     sends the output of a command
"""
