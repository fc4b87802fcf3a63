"""The parts of pages that are generated: tables, pictures, and what a command prints."""
