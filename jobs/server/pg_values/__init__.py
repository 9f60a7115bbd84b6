"""Values as PostgreSQL's clients send and expect them: types and oids, text and binary formats, what is refused."""
