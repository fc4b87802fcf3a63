"""Another setting that helps: pieces are rounded, so that they can be used again."""

settings = "expandable_segments:True,garbage_collection_threshold:0.9"
