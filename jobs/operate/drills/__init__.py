"""Recovery drills: measured rehearsals on copies, which must end in equal rows."""
