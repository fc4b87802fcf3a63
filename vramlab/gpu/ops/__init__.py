"""What single ops need on a virtual GPU: copies, values, indexing, attention, autocast."""
