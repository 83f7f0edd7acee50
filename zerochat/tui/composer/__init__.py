"""The composer, and what becomes of text before it is sent: completion, pasting, drafts, the own editor."""
