import time
from benchmarks import step
t=time.time()
print(step.run().markdown()); print(time.time()-t)
