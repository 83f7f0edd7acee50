"""The control socket: JSON-RPC server and client, request handlers, adapters and subscriptions."""
