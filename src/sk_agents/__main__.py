"""`python -m sk_agents` is the `teal` command."""

from sk_agents.cli import main

if __name__ == "__main__":
    main()
