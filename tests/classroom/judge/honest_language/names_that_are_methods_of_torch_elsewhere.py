class Saved:
    def save(self, x):
        self.obj = x
        return self

    def resize(self, times):
        self.obj *= times
        return self.obj


result = Saved().save(2).resize(3)
expected = 6
