"""Hands out the same memory again and again.

loses: LeanAllocator
says: returns a block that overlaps another
"""


class LeanAllocator:
    def __init__(self, driver):
        self.start = driver.take(64 * 2**20)

    def malloc(self, size_bytes):
        return self.start

    def free(self, address):
        pass
