"""Segments of 4 MiB at least, and the emptiest ones go back."""

MIB = 2**20


class LeanAllocator:
    def __init__(self, driver):
        self.driver = driver
        self.segments, self.free_blocks, self.living = {}, {}, {}  # address: size

    def malloc(self, size_bytes):
        size = -(-size_bytes // 512) * 512
        fitting = [(each, address) for address, each in self.free_blocks.items() if each >= size]
        if not fitting:
            for address, segment in list(self.segments.items()):
                if self.free_blocks.get(address) == segment:
                    self.driver.give_back(address)
                    del self.segments[address], self.free_blocks[address]
            segment = max(size, 4 * MIB)
            address = self.driver.take(segment)
            self.segments[address] = segment
            fitting = [(segment, address)]
        found, address = min(fitting)
        self.free_blocks.pop(address, None)
        if found > size:
            self.free_blocks[address + size] = found - size
        self.living[address] = size
        return address

    def free(self, address):
        size = self.living.pop(address)
        size += self.free_blocks.pop(address + size, 0)
        for before, length in list(self.free_blocks.items()):
            if before + length == address:
                address, size = before, size + length
        self.free_blocks[address] = size
