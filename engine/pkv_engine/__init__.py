"""A small engine with a real paged cache. Nothing here yet: the package fixes the place and the import contracts."""
