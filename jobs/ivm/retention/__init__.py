"""Retention of event logs at work: who keeps which events, what may go, and when a run sees to it."""
