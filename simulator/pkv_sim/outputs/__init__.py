"""A simulation as text and as JSON."""
