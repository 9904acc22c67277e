"""Mutation testing: small mistakes made on purpose, and the tests that should notice them.

`python -m tests.mutants --seed 1 --count 100`, or `make mutants ARGS="--module engine.context"`.
One mistake at a time is made in a copy of the package, never in the tree itself. Of the tests that
`modules.py` gives to the mutated module those are run that execute the mutated line. A mutant that
no test kills is printed with its diff; it shows a missing test, a line that does nothing, or a
change that makes no difference, which then stands in `equivalent.py` with its reason.

Written ourselves: mutmut 3 changes functions only, takes no seed and keeps all mutants of a file in
one rewritten module; cosmic-ray runs one test command for all modules, each time in a new process.
Here a mutant of the engine takes about a second, since processes are forked with every library
loaded.
"""
