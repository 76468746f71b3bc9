"""The pages of a session: what each reads, as values for its template."""
