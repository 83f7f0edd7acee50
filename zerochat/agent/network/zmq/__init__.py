"""The network: ZeroMQ sockets, who is let in, and who is thrown out. Everything else sees `transport.py` only."""
