"""One module per verb or small family of verbs: its parser and the function that runs it."""
