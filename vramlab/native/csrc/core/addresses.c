// Where cudaMalloc puts memory; vramlab/allocator/addresses.py has the rule and where it is from.
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (32 * MIB)

typedef struct {
    uintptr_t start, end;
} hole_t;

typedef struct { // holes by address
    hole_t *items;
    int count, room;
} holes_t;

typedef struct { // addresses that were taken together
    int number, of_context;
    uintptr_t start, end;
    size_t largest_hole_bytes;
    holes_t holes;
} chunk_t;

struct vn_space {
    holes_t gaps; // outside of chunks
    chunk_t **chunks;
    int count, room, numbers;
};

static void insert(holes_t *holes, int at, hole_t hole) {
    if (holes->count == holes->room) {
        holes->room = holes->room ? 2 * holes->room : 4;
        holes->items = realloc(holes->items, sizeof(hole_t) * (size_t)holes->room);
    }
    memmove(holes->items + at + 1, holes->items + at, sizeof(hole_t) * (size_t)(holes->count - at));
    holes->items[at] = hole;
    holes->count++;
}

static void erase(holes_t *holes, int at) {
    holes->count--;
    memmove(holes->items + at, holes->items + at + 1, sizeof(hole_t) * (size_t)(holes->count - at));
}

// Add a hole, and join it with those that it touches.
static void add(holes_t *holes, uintptr_t start, uintptr_t end) {
    int at = 0;
    while (at < holes->count && holes->items[at].start < start) at++;
    if (at < holes->count && holes->items[at].start == end) {
        end = holes->items[at].end;
        erase(holes, at);
    }
    if (at && holes->items[at - 1].end == start) {
        holes->items[at - 1].end = end;
    } else {
        insert(holes, at, (hole_t){start, end});
    }
}

static void measure(chunk_t *chunk) {
    chunk->largest_hole_bytes = 0;
    for (int i = 0; i < chunk->holes.count; i++) {
        size_t bytes = chunk->holes.items[i].end - chunk->holes.items[i].start;
        if (bytes > chunk->largest_hole_bytes) chunk->largest_hole_bytes = bytes;
    }
}

static chunk_t *new_chunk(vn_space_t *space, uintptr_t start, size_t bytes, int of_context) {
    if (space->count == space->room) {
        space->room = space->room ? 2 * space->room : 64;
        space->chunks = realloc(space->chunks, sizeof(chunk_t *) * (size_t)space->room);
    }
    chunk_t *chunk = calloc(1, sizeof *chunk);
    *chunk = (chunk_t){.number = ++space->numbers, .of_context = of_context, .start = start, .end = start + bytes};
    insert(&chunk->holes, 0, (hole_t){start, start + bytes});
    measure(chunk);
    space->chunks[space->count++] = chunk;
    return chunk;
}

vn_space_t *vn_space_new(uintptr_t start, size_t bytes) {
    vn_space_t *space = calloc(1, sizeof *space);
    uintptr_t top = start + bytes - 16 * CHUNK_BYTES; // room for the context's own
    insert(&space->gaps, 0, (hole_t){start, top});
    new_chunk(space, top + 414 * MIB + 74 * MIB, 24 * MIB, 1);
    new_chunk(space, top + 414 * MIB, 2 * MIB, 1);
    return space;
}

// The top of the highest gap that is larger: the driver maps more, and cuts it to size.
static uintptr_t take_gap(vn_space_t *space, size_t bytes) {
    for (int i = space->gaps.count - 1; i >= 0; i--) {
        hole_t *gap = &space->gaps.items[i];
        if (gap->end - gap->start > bytes) return gap->end -= bytes;
    }
    return 0;
}

// The start of the smallest hole that is large enough; the lowest of several.
static uintptr_t take_from(chunk_t *chunk, size_t bytes) {
    int best = -1;
    size_t best_bytes = 0;
    for (int i = 0; i < chunk->holes.count; i++) {
        size_t has = chunk->holes.items[i].end - chunk->holes.items[i].start;
        if (has >= bytes && (best < 0 || has < best_bytes)) best = i, best_bytes = has;
    }
    uintptr_t address = chunk->holes.items[best].start;
    chunk->holes.items[best].start += bytes;
    if (best_bytes == bytes) erase(&chunk->holes, best);
    measure(chunk);
    return address;
}

uintptr_t vn_space_take(vn_space_t *space, size_t bytes) {
    chunk_t *newest = NULL;
    for (int i = 0; i < space->count; i++) {
        chunk_t *chunk = space->chunks[i];
        if (chunk->largest_hole_bytes >= bytes && (!newest || chunk->number > newest->number)) newest = chunk;
    }
    if (!newest) {
        size_t chunk_bytes = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
        uintptr_t start = take_gap(space, chunk_bytes);
        if (!start) return 0;
        newest = new_chunk(space, start, chunk_bytes, 0);
    }
    return take_from(newest, bytes);
}

uintptr_t vn_space_reserve(vn_space_t *space, size_t bytes) {
    bytes = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    uintptr_t start = take_gap(space, bytes);
    return start ? take_from(new_chunk(space, start, bytes, 0), bytes) : 0;
}

void vn_space_give_back(vn_space_t *space, uintptr_t address, size_t bytes) {
    for (int i = 0; i < space->count; i++) {
        chunk_t *chunk = space->chunks[i];
        if (address < chunk->start || address >= chunk->end) continue;
        add(&chunk->holes, address, address + bytes);
        measure(chunk);
        if (!chunk->of_context && chunk->largest_hole_bytes == chunk->end - chunk->start) {
            add(&space->gaps, chunk->start, chunk->end);
            free(chunk->holes.items);
            free(chunk);
            space->chunks[i] = space->chunks[--space->count];
        }
        return;
    }
}
