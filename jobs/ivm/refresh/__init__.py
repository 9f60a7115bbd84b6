"""One refresh of one stage: from one version vector to the next, in one commit."""
