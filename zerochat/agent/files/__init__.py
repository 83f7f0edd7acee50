"""Files on this machine's disk: kept encrypted, taken in from a person's folders, and saved there again."""
