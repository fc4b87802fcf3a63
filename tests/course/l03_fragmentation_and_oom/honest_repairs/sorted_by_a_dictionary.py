"""A dictionary from places to features, filled from the longest on, and popped in order."""

import operator


def collect(load, lengths):
    found = {}
    order = sorted(enumerate(lengths), key=operator.itemgetter(1))
    while order:
        place, length = order.pop()
        found |= {place: load(length).narrow(0, 0, length * 6 // 10).clone()}
    return [found.pop(place) for place in range(len(lengths))]
