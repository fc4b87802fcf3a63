class Block:
    made = 0
    _kept = None

    def __init__(self):
        Block.made += 1
        type(self)._kept = self

    @classmethod
    def forget(cls):
        cls._kept = None


Block()
Block().forget()
result = Block.made, Block._kept
expected = (2, None)
