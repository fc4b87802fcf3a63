"""What is seen while a run goes on: blocks, their lines and owners, steps, stages, values."""
