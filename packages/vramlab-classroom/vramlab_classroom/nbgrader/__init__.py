"""nbgrader's notebooks, steps and gradebook: from it to the judge, and back."""
