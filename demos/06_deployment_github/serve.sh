#!/bin/sh
# Fetches a repository of agents and serves one of them. The variables are those of the public Teal
# Agents project; further arguments go to `teal serve`.
set -eu

: "${TA_GH_ORG:?}" "${TA_GH_REPO:?}" "${TA_AGENT_NAME:?}"
server="${GIT_SERVER:-https://github.com}"
folder="${CHECKOUT:-$(mktemp -d)}"

git clone --quiet --depth 1 --branch "${TA_GH_BRANCH:-main}" "$server/$TA_GH_ORG/$TA_GH_REPO" "$folder"
agent="$folder/$TA_AGENT_NAME"
# Done: the server itself would refuse to start with the switch, and say of the others that they have
# no effect.
unset TA_GITHUB TA_GH_ORG TA_GH_REPO TA_GH_BRANCH TA_GH_TOKEN TA_AGENT_NAME
exec teal serve "$agent" "$@"
