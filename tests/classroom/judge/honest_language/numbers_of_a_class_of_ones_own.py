class Size(int):
    def __new__(cls, text):
        return super().__new__(cls, text[:-1])

    def __str__(self):
        return f"{int(self)} B"


result = str(Size("12B")), Size("3B") + 1
expected = ("12 B", 4)
