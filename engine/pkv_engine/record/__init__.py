"""A proxy that writes down the traffic between clients and a server. Imports no torch."""
