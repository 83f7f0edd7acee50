"""The profile's encrypted journal, its key, its backups and its folders."""
