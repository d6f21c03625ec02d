"""Reports of a verification, for terminals, programs and browsers."""
