"""The site: its pages, Sphinx's configuration, and what builds it."""
