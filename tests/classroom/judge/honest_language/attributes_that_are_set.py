class Fixed:
    def __init__(self, x):
        super().__setattr__("x", x)

    def __setattr__(self, name, value):
        raise AttributeError(name)


f = Fixed(3)
try:
    f.x = 4
except AttributeError as error:
    result = f.x, str(error)
expected = (3, "x")
