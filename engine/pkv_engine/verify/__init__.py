"""What a server really reuses, held against what was predicted. Imports no torch."""
