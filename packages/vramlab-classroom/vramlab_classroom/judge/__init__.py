"""Grading: from the cells of a notebook to points that were earned.

What a task is
    `tasks.py` in a lesson's room in `vramlab_course/lessons/` is its exercise (`task.py` says what
    it is made of). A task holds cases and the program that measures their truth, never an expected
    number; or, if a program is to be repaired, what its `Repair` tries answers with.

What an answer is
    Source text: the last cell that binds the task's name, with the definitions of other cells that
    it needs (`answers.py`). The learner's objects are never looked at, and a submission is never
    executed as a notebook, so what else it does (input transformers, patches, `sys.exit`, threads,
    output without end) has no effect.

Where it runs
    On a job pool (`job_pool.py`): processes of its own, which fork once per job. Predictions
    and diagnoses are ordinary Python (`sandbox/plain_answers.py`), in a process that has never
    measured or seen what is right, and without the system calls for files, network and programs: so
    they cannot measure instead of predict, read the hidden cases' seed, or write to the gradebook.
    A repaired program (`job_server.py`, `jobs.py`) shares its process with the virtual GPU it runs
    on, so it speaks a smaller language (`restricted.py`, `vocabulary.py`): it can write to its own
    objects only, and what torch.cuda says afterwards is true.

What if it breaks out
    Each job has limits (`sandbox/job_limits.py`), has no open file but its reply, can neither read
    nor trace the pool, ends with all that it started (`sandbox/confinement.py`), and on Linux has
    no system calls for processes and signals (`sandbox/syscalls.py`). Truth is measured in forks
    that never ran a learner's code, from a server that never did and that remembers no answer and
    no truth (`sandbox/serving.py`); and a reply is data of one shape, or none (`replies.py`). So
    code that broke out can alter no result but its own. Around the pool
    `vramlab_classroom.sandbox.bubblewrap` puts walls that keep it from files and network, too.

Who decides
    The judge (`judge.py`), which compares data of exact types with what the pool measured in a
    fresh fork. Visible cases let the learner know where they stand; hidden ones, drawn from a seed
    that only the teacher's `autograder/` has, decide. Feedback on a wrong answer names its likely
    mistake. It earns the points of the rules that it knows (`partial_credit.py`), and loses none
    for an earlier answer that it builds on (`follow_through.py`). What could not be graded has no
    score at all, and is listed (`nbgrader/gradebooks.py`).

Three ways in, one verdict
    `check()` in a test cell (JupyterLab, and nbgrader's Validate button), `vramlab check` in the
    shell, and `JudgeTasks` (`nbgrader/nbgrader_steps.py`) inside `nbgrader autograde`.
"""

from __future__ import annotations

from vramlab_classroom.judge.notebook_api import check, evidence

__all__ = ["check", "evidence"]
