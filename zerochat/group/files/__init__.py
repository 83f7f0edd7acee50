"""Files: descriptors in posts, downloads part by part, and uploads to other members."""
