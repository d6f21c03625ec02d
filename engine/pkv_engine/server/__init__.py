"""An OpenAI-compatible server. The way of a request: `chat` or `completions`, `service` with its renderer,
`async_engine`, `engine`, the runner; and back through `answer`."""
