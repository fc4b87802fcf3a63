"""What lesson 11 asks its learners to predict."""

from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "coefficient": Question(
        "How many bytes does BERT-base save per squared token?",
        unit="B",
        hint="The picture shows MiB for 12 heads of 262,144 pairs each. How many bytes is that for "
        "one pair in one head?",
        mistakes={
            "You forgot dropout's mask: one byte per pair.": 12 * 12 * 8,
            "The mask is boolean: one byte per pair, not four.": 12 * 12 * 12,
            "You counted the softmax only. Dropout saves two more tensors.": 12 * 12 * 4,
            "You counted the scores too. The backward pass does not need them.": 12 * 12 * 13,
            "That is one layer. BERT-base has twelve.": 12 * 9,
            "That is one head of one layer.": 9,
        },
    ),
    "doubling": Question(
        "How many times as much is saved for 2,048 tokens as for 1,024?",
        unit="times",
        hint="One part doubles, the other quadruples. Which is larger at 1,024 tokens?",
        mistakes={
            "That would be attention alone. What the Linear layers save only doubles.": 4,
            "That would be without attention. The number of pairs quadruples.": 2,
        },
    ),
    "flash": Question(
        "How much does flash attention save, its output included?",
        unit="MiB",
        hint="How large are the output, 2048 x 12 x 64 numbers of 2 bytes, and the logsumexp, "
        "2048 x 12 numbers of 4?",
        mistakes={
            "You counted query, key and value too. They were allocated before.": (
                lambda measured: 4 * measured
            ),
            "You counted one head. There are twelve.": lambda measured: measured / 12,
        },
    ),
    "state": Question(
        "How large is the state after 1,024 tokens?",
        unit="KiB",
        hint="The state is one float32 matrix for each head. Which of its sizes depends on the "
        "number of tokens?",
        mistakes={
            "That is one state for each token. The state has a fixed size.": (
                lambda measured: 1024 * measured
            ),
            "That is one head. There are twelve.": lambda measured: measured / 12,
        },
    ),
}
