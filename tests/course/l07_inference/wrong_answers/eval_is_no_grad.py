"""Believes that eval() turns autograd off.

loses: which_mode
says: You took eval() for no_grad().
"""


def which_mode(readings):
    return "eval()" if readings["left"] == readings["input"] else "train()"
