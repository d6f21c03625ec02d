"""From a file of traffic to requests in blocks."""
