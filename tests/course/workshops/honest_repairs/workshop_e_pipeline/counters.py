"""Goes forward so long as few enough are in flight, else backward."""


def one_forward_one_backward(rank, ranks, micro_batches):
    order, forward, backward = [], 0, 0
    while backward < micro_batches:
        if forward < micro_batches and forward - backward < ranks - rank:
            order.append(("forward", forward))
            forward += 1
        else:
            order.append(("backward", backward))
            backward += 1
    return order
