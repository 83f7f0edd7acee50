"""The line to the agent, and what the face knows through it. View state only: the truth is in the agent."""
