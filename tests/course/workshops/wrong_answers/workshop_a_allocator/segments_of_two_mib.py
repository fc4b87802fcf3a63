"""Rounds all segments to 2 MiB.

loses: CachingAllocator
says: bytes from the driver; PyTorch takes 20,971,520.
"""

MIB = 2**20


class CachingAllocator:
    def __init__(self, driver):
        self.driver = driver
        self.free_blocks = {}  # address: size, is it small
        self.living = {}

    def malloc(self, size_bytes):
        size = -(-size_bytes // 512) * 512
        small = size <= MIB
        fitting = [
            (each, address)
            for address, (each, kind) in self.free_blocks.items()
            if kind == small and each >= size
        ]
        if not fitting:
            segment = -(-size // (2 * MIB)) * 2 * MIB
            segment = 2 * MIB if small else segment
            fitting = [(segment, self.driver.take(segment))]
        found, address = min(fitting)
        self.free_blocks.pop(address, None)
        rest = found - size
        if rest >= (512 if small else MIB + 1):
            self.free_blocks[address + size] = (rest, small)
        else:
            size = found
        self.living[address] = (size, small)
        return address

    def free(self, address):
        size, small = self.living.pop(address)
        size += self.free_blocks.pop(address + size, (0, small))[0]
        for before, (length, _) in list(self.free_blocks.items()):
            if before + length == address:
                address, size = before, size + length
        self.free_blocks[address] = (size, small)
