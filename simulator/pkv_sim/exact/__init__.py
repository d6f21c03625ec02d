"""Cache and scheduler block by block, as vLLM has them: the engine runs them, the fast core is held to them."""
