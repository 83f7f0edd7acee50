"""The message pane: events as rows, what each consists of, where it stands, and how it is drawn."""
