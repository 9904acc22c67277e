#!/bin/sh
# What the public Teal Agents project's container does before it serves: fetch the agent from
# GitHub if TA_GITHUB says so, install what its plugins need, start the server. Arguments are those
# of `teal serve`.
set -eu

# Where that project's containers have their agents; a volume is mounted there as before.
AGENTS_FOLDER=${AGENTS_FOLDER:-/app/src/sk-agents/agents}
# Packages of plugins; on a volume they are installed once.
PACKAGES_FOLDER=${PACKAGES_FOLDER:-/var/lib/teal/packages}
GIT_SERVER=${GIT_SERVER:-https://github.com}
# The server's own packages: a plugin must not bring other versions of them.
CONSTRAINTS=${CONSTRAINTS:-/opt/teal/constraints.txt}
PIP=${PIP:-/usr/local/bin/python3 -m pip}

refuse() {
    echo "start: $1" >&2
    exit 78
}

is_commit() {
    case $1 in *[!0-9a-f]*) return 1 ;; esac
    [ ${#1} -eq 40 ]
}

# Git asks this for the token, so that it is in no address, no argument and no file.
git_with_token() {
    # shellcheck disable=SC2016  # git's own shell expands it
    git -c credential.helper= \
        -c 'credential.helper=!f() { echo username=oauth2; echo "password=$TA_GH_TOKEN"; }; f' "$@"
}

fetch_agent() {
    [ -n "${TA_GH_ORG:-}" ] || refuse "TA_GITHUB is true, but TA_GH_ORG is not set"
    [ -n "${TA_GH_REPO:-}" ] || refuse "TA_GITHUB is true, but TA_GH_REPO is not set"
    [ -n "${TA_AGENT_NAME:-}" ] || refuse "TA_GITHUB is true, but TA_AGENT_NAME is not set"
    case /$TA_AGENT_NAME/ in */../* | //*) refuse "TA_AGENT_NAME: must be a folder of the repository" ;; esac
    address=$GIT_SERVER/$TA_GH_ORG/$TA_GH_REPO.git
    branch=${TA_GH_BRANCH:-main}
    commit=${TA_GH_COMMIT:-}
    if [ -z "$commit" ] && is_commit "$branch"; then
        commit=$branch
    fi
    export TA_GH_TOKEN="${TA_GH_TOKEN:-}" GIT_TERMINAL_PROMPT=0
    if [ -z "$commit" ]; then
        now=$(git_with_token ls-remote "$address" "$branch" | cut -f 1 | head -n 1) ||
            refuse "TA_GITHUB: $address cannot be read; a private repository needs TA_GH_TOKEN"
        refuse "TA_GITHUB: whoever can push to '$branch' could run code here at the next start. Name \
what you have looked at: TA_GH_COMMIT=${now:-the id of a commit}${now:+ is what it holds now}"
    fi
    is_commit "$commit" || refuse "TA_GH_COMMIT: must be the whole id of a commit, 40 hexadecimal digits"
    work=$(mktemp -d)
    git init --quiet "$work"
    git_with_token -C "$work" fetch --quiet --depth 1 "$address" "$commit" ||
        refuse "TA_GITHUB: $address has no commit $commit, or it cannot be read"
    archive=$work/agent.tar
    git -C "$work" archive --format=tar --output="$archive" "$commit:$TA_AGENT_NAME" 2>/dev/null ||
        refuse "TA_AGENT_NAME: $TA_GH_REPO has no folder '$TA_AGENT_NAME' at $commit"
    sum=$(sha256sum "$archive" | cut -d ' ' -f 1)
    if [ -n "${TA_GH_SHA256:-}" ] && [ "$TA_GH_SHA256" != "$sum" ]; then
        refuse "TA_GH_SHA256: what was fetched has the checksum $sum"
    fi
    mkdir -p "$AGENTS_FOLDER"
    tar -xf "$archive" -C "$AGENTS_FOLDER"
    rm -rf "$work"
    echo "start: $TA_AGENT_NAME of $address at $commit, TA_GH_SHA256=$sum" >&2
}

install_packages() {
    echo "start: installing what $1 names" >&2
    # shellcheck disable=SC2086  # a command with its arguments
    $PIP install --quiet --disable-pip-version-check --no-input --no-cache-dir --upgrade \
        --constraint "$CONSTRAINTS" --target "$PACKAGES_FOLDER" --requirement "$1" ||
        refuse "$1: its packages cannot be installed beside the server's own (see above)"
    export PYTHONPATH="$PACKAGES_FOLDER${PYTHONPATH:+:$PYTHONPATH}"
}

case ${TA_GITHUB:-false} in
    true | True | TRUE) fetch_agent ;;
esac
if [ -f "$AGENTS_FOLDER/requirements.txt" ]; then
    install_packages "$AGENTS_FOLDER/requirements.txt"
fi
if [ -n "${TA_ADDL_REQUIREMENTS:-}" ]; then
    # That project's documentation leaves out the first part of the path.
    for file in "$TA_ADDL_REQUIREMENTS" "/app$TA_ADDL_REQUIREMENTS" "$AGENTS_FOLDER/$(basename "$TA_ADDL_REQUIREMENTS")"; do
        [ -f "$file" ] && break
    done
    [ -f "$file" ] || refuse "TA_ADDL_REQUIREMENTS: there is no file '$TA_ADDL_REQUIREMENTS'"
    install_packages "$file"
fi
export TA_GITHUB=false
unset TA_GH_ORG TA_GH_REPO TA_GH_BRANCH TA_GH_COMMIT TA_GH_SHA256 TA_GH_TOKEN \
    TA_AGENT_NAME TA_ADDL_REQUIREMENTS
cd "$(dirname "$AGENTS_FOLDER")"
exec teal serve "$@"
