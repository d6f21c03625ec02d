"""Paged Triton kernels. Nothing here yet: this source root fixes the place and the import contracts."""
