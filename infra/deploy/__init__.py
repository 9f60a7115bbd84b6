"""The image of Strandline, and the files that run it: compose, Kubernetes, systemd."""
