import sys, time, os
from pathlib import Path
from tests.simulation.substitution import substitute
from tests.simulation.history import run_history
from tests.simulation.plan import plan_of
from tests.simulation.disk import *
import warnings
warnings.filterwarnings("ignore", "coroutine .* was never awaited")
substitute(SimulatedOs(), SimulatedLocks()); install_sqlite()
start=int(sys.argv[1]); n=int(sys.argv[2]); store=sys.argv[3]
import gc; gc.collect(); gc.freeze()
t=time.process_time()
bad=0
for seed in range(start,start+n):
    r=run_history(plan_of(seed,store), Path("/dev/shm/sim"))
    if r.problems:
        bad+=1
        print(seed, r.problems[:3])
    if n==1:
        print("\n".join(r.trace))
    
print(n,"histories",bad,"bad",(time.process_time()-t)/n,"s each", r.steps)
