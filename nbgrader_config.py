"""Lets nbgrader's commands, and JupyterLab, be started from here: see autograder/."""

load_subconfig("autograder/nbgrader_config.py")  # noqa: F821  (given by nbgrader)
