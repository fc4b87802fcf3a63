"""Takes whatever leaves two activations for a ReLU.

loses: which_function
leaves: 2.5
says: You told it from the reading between products alone.
"""


def which_function(readings):
    products = readings["between products"] / readings["activation"]
    return {2: "relu", 2.25: "dropout", 3: "gelu", 4: "x * sigmoid(x)"}[products]
