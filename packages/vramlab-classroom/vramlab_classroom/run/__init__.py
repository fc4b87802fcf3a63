"""Grade a class: workers, the journal, the gradebook's one writer."""
