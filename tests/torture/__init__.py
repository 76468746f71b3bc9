"""Campaigns that try to break what is promised, with figures and a seed to repeat them by.

`python -m tests.torture` runs their long forms; `test_*.py` beside it runs short ones with every test run.
"""
