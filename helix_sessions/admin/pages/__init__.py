"""The pages of a session: what each reads, as values its template shows."""
