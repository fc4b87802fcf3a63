"""A cache of keys and values in pages, for many requests at once.

One tensor has room for all pages. A request has a table of those that are its own or shared, in the
order of its text; so a page can lie anywhere, and one page can be in several tables. Source: Kwon
et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
(arXiv 2309.06180) §4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vramlab.errors import VramlabError


class OutOfPages(VramlabError, RuntimeError):
    """A request needs a page, and none is free."""


class PagedCache:
    """Keys and values of many requests.

    Args:
        pages: how many there are.
        page_tokens: tokens of a page.
        layers: of the model.
        kv_heads: key-value heads of a layer.
        head_size: numbers in one key, or one value.
        dtype: of keys and values.

    Attributes:
        slots: all pages, in one tensor (layers, 2, pages, tokens, heads, head size).
        free: numbers of the free pages; the next one last.
        tables: pages of each request, in the order of its text.
        lengths: tokens of each request.
        holders: how many requests hold each page.
    """

    def __init__(
        self,
        pages: int,
        page_tokens: int,
        layers: int,
        kv_heads: int,
        head_size: int,
        dtype: torch.dtype = torch.float16,
    ) -> None:
        shape = (layers, 2, pages, page_tokens, kv_heads, head_size)
        self.slots = torch.empty(shape, dtype=dtype, device="cuda")
        self.page_tokens = page_tokens
        self.free = list(reversed(range(pages)))
        self.tables: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}
        self.holders = [0] * pages

    @property
    def page_bytes(self) -> int:
        """Keys and values of a page in all layers."""
        return self.slots.nbytes // len(self.holders)

    @property
    def used_pages(self) -> int:
        """Number of pages in use."""
        return len(self.holders) - len(self.free)

    def grow(self, request: str, tokens: int) -> None:
        """Make room for so many more tokens of a request, which is new or there already.

        Raises:
            OutOfPages: there is too little; nothing has changed then.
        """
        table, length = self.tables.get(request, []), self.lengths.get(request, 0)
        added = -(-(length + tokens) // self.page_tokens) - len(table)
        # Who writes on in a page that others hold, too, writes into a copy of it.
        copied = bool(tokens and length % self.page_tokens and self.holders[table[-1]] > 1)
        if added + copied > len(self.free):
            raise OutOfPages(
                f"{request!r} needs {added + copied} pages more; {len(self.free)} are free"
            )
        table = list(table)
        if copied:
            shared = table.pop()
            self.holders[shared] -= 1
            table.append(self._take())
            self.slots[:, :, table[-1]] = self.slots[:, :, shared]
        table += [self._take() for _ in range(added)]
        self.tables[request], self.lengths[request] = table, length + tokens

    def append(self, request: str, keys: Tensor, values: Tensor) -> None:
        """Write keys and values of new tokens, each (layers, tokens, heads, head size).

        Raises:
            OutOfPages: there are too few pages for them.
        """
        begin = self.lengths.get(request, 0)
        self.grow(request, keys.shape[1])
        for new in range(keys.shape[1]):
            number, slot = divmod(begin + new, self.page_tokens)
            page = self.tables[request][number]
            self.slots[:, 0, page, slot] = keys[:, new]
            self.slots[:, 1, page, slot] = values[:, new]

    def read(self, request: str, layer: int) -> tuple[Tensor, Tensor]:
        """Gather keys and values of a layer, each (tokens, heads, head size)."""
        pages = torch.tensor(self.tables[request], device=self.slots.device)
        keys, values = self.slots[layer][:, pages].flatten(1, 2)[:, : self.lengths[request]]
        return keys, values

    def fork(self, request: str, other: str) -> None:
        """Let another request begin with the same text: with the same pages, not with copies."""
        self.tables[other] = list(self.tables[request])
        self.lengths[other] = self.lengths[request]
        for page in self.tables[other]:
            self.holders[page] += 1

    def release(self, request: str) -> None:
        """Free the pages of a request that no other request holds."""
        del self.lengths[request]
        for page in self.tables.pop(request):
            self.holders[page] -= 1
            if not self.holders[page]:
                self.free.append(page)

    def _take(self) -> int:
        page = self.free.pop()
        self.holders[page] = 1
        return page
