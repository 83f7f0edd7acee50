"""Files: what a post names, how its content is asked for part by part, and how it is given to others."""
