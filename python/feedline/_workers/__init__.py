"""Worker processes, which read data sets written in Python.

| file | what | runs in |
| --- | --- | --- |
| `choice.py` | threads or processes, and how many | the process that has the loader |
| `measure.py` | how long a sample takes, and whether threads read side by side | the process that has the loader |
| `start.py` | starts the fork server, and workers through it | the process that has the loader |
| `packing.py` | a data set in one block of memory that all workers map | both |
| `server.py` | the fork server: imports what the workers need, forks them, and waits for their ends | itself |
| `worker.py` | one worker: reads samples into blocks of shared memory | a worker |
| `seeds.py` | which random generators a data set uses, seeded for a sample | all |
| `generators.py` | the states of random generators | all |
| `owned.py` | the generators that a data set keeps | all |
| `faults.py` | an exception of a worker, from one process to another | both |

`src/processes/` is the other end of a worker's sockets: it asks for samples and copies their rows into a slot,
without the interpreter's lock.
"""

from __future__ import annotations

#: Whether this process is a fork server or a worker; and whether it is a server that still imports.
is_worker = is_importing = False
