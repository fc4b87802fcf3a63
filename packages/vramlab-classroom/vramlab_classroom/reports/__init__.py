"""What a class did with an assignment."""
