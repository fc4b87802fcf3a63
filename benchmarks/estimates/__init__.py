"""What tools that predict GPU memory say, beside what was measured: cases, programs, scores."""
