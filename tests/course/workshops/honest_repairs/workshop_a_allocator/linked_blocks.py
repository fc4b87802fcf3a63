"""Blocks that know their neighbours, and sorted lists of free ones."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

MIB = 2**20


@dataclass(eq=False)
class Piece:
    address: int
    size: int
    small: bool
    before: Any = None
    behind: Any = None
    is_free: bool = True


class CachingAllocator:
    def __init__(self, driver):
        self.driver = driver
        self.pieces = {}
        self.sorted = {True: [], False: []}

    def malloc(self, size_bytes):
        size = (size_bytes + 511) // 512 * 512
        small = size <= MIB
        known = self.sorted[small]
        index = bisect_left(known, (size, 0))
        if index < len(known):
            piece = self.pieces[known.pop(index)[1]]
        else:
            piece = self.new_segment(size, small)
        rest = piece.size - size
        if rest >= 512 if small else rest > MIB:
            behind = Piece(piece.address + size, rest, small, piece, piece.behind)
            if piece.behind:
                piece.behind.before = behind
            piece.behind, piece.size = behind, size
            self.pieces[behind.address] = behind
            insort(known, (rest, behind.address))
        piece.is_free = False
        return piece.address

    def new_segment(self, size, small):
        if small:
            segment = 2 * MIB
        elif size < 10 * MIB:
            segment = 20 * MIB
        else:
            segment = (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
        piece = Piece(self.driver.take(segment), segment, small)
        self.pieces[piece.address] = piece
        return piece

    def free(self, address):
        piece = self.pieces[address]
        known = self.sorted[piece.small]
        behind, before = piece.behind, piece.before
        if behind and behind.is_free:
            known.remove((behind.size, behind.address))
            del self.pieces[behind.address]
            piece.size += behind.size
            piece.behind = behind.behind
            if piece.behind:
                piece.behind.before = piece
        if before and before.is_free:
            known.remove((before.size, before.address))
            del self.pieces[piece.address]
            before.size += piece.size
            before.behind = piece.behind
            if before.behind:
                before.behind.before = before
            piece = before
        piece.is_free = True
        insort(known, (piece.size, piece.address))
