"""Clicks of one website through five views: their producer, the views, and when each click was visible."""
