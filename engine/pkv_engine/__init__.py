"""A small engine with a real paged cache. Nothing here yet: this source root fixes the place and the import contracts."""
