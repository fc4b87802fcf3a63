"""Compares the states with all parameters, frozen ones included.

loses: which_optimizer
says: You compare the states with all parameters.
"""


def which_optimizer(allocated):
    states = allocated["step"] - allocated["backward"]
    return ("sgd", "momentum", "adam")[states // allocated["model"]]
