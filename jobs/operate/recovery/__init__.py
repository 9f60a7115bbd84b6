"""Recovery: backups of a lake, restored and verified; drills, measured rehearsals on copies, that end in equal rows."""
