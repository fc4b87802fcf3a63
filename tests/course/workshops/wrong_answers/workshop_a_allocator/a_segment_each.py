"""Takes a segment for each block.

loses: LeanAllocator
says: That is too many driver calls.
"""


class LeanAllocator:
    def __init__(self, driver):
        self.driver = driver

    def malloc(self, size_bytes):
        return self.driver.take(size_bytes)

    def free(self, address):
        self.driver.give_back(address)
