"""What clients and servers of the four APIs say to each other. Imports no torch."""
