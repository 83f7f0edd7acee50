"""The network: ZeroMQ links between agents (zmq/), and HTTP and WebSocket (web/)."""
