"""What stands in for the layers under torch.cuda, and for libraries that ask a GPU themselves."""
