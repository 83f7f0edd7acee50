"""The composer: text input, completion, pasting, drafts, external editor."""
