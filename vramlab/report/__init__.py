"""Run a program on a virtual GPU and tell where its peak of memory came from.

    program.Program        a script or module, run as python runs it
    watch.Watch            everything below for one run; `with Watch(gpu) as watch`
    peak.PeakWatch         which blocks live when allocated bytes are highest, event by event
    origins.Origins        which line of the program a block comes from, also in the backward pass
    owners.Owners          which blocks parameters, gradients and optimizer states are in
    summary.Summary        what was found, as data
    text.as_text           the same, to be read

`vramlab run` does it in a shell.
"""
