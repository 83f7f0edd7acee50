"""The machine room: everything of an agent that touches sockets, disk and clock, so that the core need not."""
