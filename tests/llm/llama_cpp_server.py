"""llama.cpp's server with small weights, as a program of its own: prints its address, and ends with
its input. `xllamacpp` is that server as a library, which is how it can be had from a registry."""

import sys

import xllamacpp  # type: ignore[import-untyped]  # it brings no types

from sk_agents.llm.local import weights_path


def main() -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights_path())
    parameters.model_alias = {"smol"}
    parameters.n_ctx = 1024
    parameters.n_parallel = 2
    # More threads than idle cores wait for each other.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.verbosity = 0
    parameters.api_keys = ["llama-key"]
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
