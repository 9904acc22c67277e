"""Where foreign code runs: a process that can reach its work folder, and nothing else of ours."""
