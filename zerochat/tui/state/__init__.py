"""The connection to the agent and the view state built from it. The agent is authoritative."""
