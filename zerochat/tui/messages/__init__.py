"""The message pane: events to rows, layout, timeline, painting."""
