"""A report as one page, a module for each thing that is drawn: they say what stands where, the templates how."""
