"""The front end of queries: a SELECT's tree becomes a logical query, for views, pull and push queries alike."""
