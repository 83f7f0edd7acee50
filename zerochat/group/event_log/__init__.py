"""The event log: events, chains, and the hybrid Lamport time that orders them."""
