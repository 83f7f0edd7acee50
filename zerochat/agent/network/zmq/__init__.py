"""ZeroMQ network: CURVE sockets with authentication, limits and bans. Other packages use `transport.py` only."""
