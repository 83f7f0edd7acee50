"""Wire formats: message bodies, event runs, multi-recipient frames, padding, queue names."""
