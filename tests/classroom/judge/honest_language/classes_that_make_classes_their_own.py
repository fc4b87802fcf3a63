class Plug:
    known = {}

    def __init_subclass__(cls, /, key, **others):
        super().__init_subclass__(**others)
        Plug.known[key] = cls

    def __class_getitem__(cls, key):
        return cls.known[key]


class Doubled(Plug, key="twice"):
    def __call__(self, x):
        return 2 * x


class Named:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return self.name


class Owner:
    part = Named()


result = Plug["twice"]()(4), Owner().part
expected = (8, "part")
