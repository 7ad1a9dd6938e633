"""Many processes on one memory, killed again and again, beside programs that take no lock; and the sum at the end.

`ours` and `foreign` are the processes, `ledger` what each of them wrote down about its own deeds, `stage` starts, kills
and ends them, `account` compares what was acknowledged with what is there. test_torture.py runs all of it.
"""
