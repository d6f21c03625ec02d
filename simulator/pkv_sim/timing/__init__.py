"""How long a step of the engine takes: profiles that were fitted to a server, and estimates from data sheets."""
