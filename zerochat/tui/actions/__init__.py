"""What commands, keys and clicks do on the chat screen: each asks the agent or opens a sheet, and tells."""
