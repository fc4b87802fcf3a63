"""A room for each lesson: everything that its notebook and its exercise alone need.

    tasks           the exercise: its tasks, how their truth is measured, which mistakes are known
    experiment      what the lesson runs and compares with published figures
    formulas        its predictions in closed form
    explorer        its widget
    predictions     the questions of its notebook, with hints and known mistakes
    picture         its drawing
    ranks           its program for torchrun: one process for each GPU

Where a room has several of a kind, their subject comes first (`padding_experiment`). Further files
are the models and techniques that it teaches. What two lessons share lies beside `lessons`, in
`experiments`, `formulas`, `plots`, `widgets`, `programs` and `tasks`.
"""
