"""Campaigns: damage by the thousand, to find what one case after another would not. Each is a command of its own."""
