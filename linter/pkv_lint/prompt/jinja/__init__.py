"""Running a chat template as the server does: sandboxed, limited, and traced on demand."""
