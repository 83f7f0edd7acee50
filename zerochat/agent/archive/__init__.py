"""A group's event log as a file: export, import and audit."""
