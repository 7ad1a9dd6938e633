# The main job on a throw-away workspace; each command is printed before its output.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
unset ORYXOS_ROOT ORYX_AGENT ORYX_MEMORY_BACKEND

run() {
    printf '\n$ %s\n' "$1"
    sh -c "$1" 2>&1 || printf '(exit code %s)\n' "$?"
}

run "oryx memory init"
run "oryx memory append -a ops --scope core 'Never deploy on Friday'"
run "oryx memory append -a ops '上线前必须两人复核' --tag 流程 --key release_rule"
run "oryx memory append -a ops 'Use uv, not pip' --tag tooling"
run "printf '第一行\n第二行' | oryx memory append -a ops"
run "oryx memory recall -a ops 复核"
run "oryx memory recall -a ops ＵＶ"
run "oryx memory recall -a ops Friday"
run "oryx memory load -a ops"
run "oryx memory append -a ops '上线前必须三人复核' --tag 流程 --key release_rule"
run "oryx memory list -a ops --retired --json"
run "oryx memory append -a ops 'Use uv, not pip' --tag tooling"
run "oryx memory clean -a ops --dry-run"
run "oryx memory clean -a ops --quiet"
run "oryx memory forget -a ops '^release_rule'"
run "oryx memory restore -a ops '^release_rule'"
run "oryx memory edit -a ops '^release_rule' '上线前必须四人复核'"
run "cat .oryxos/agents/ops/MEMORY.md"
run "cat .oryxos/agents/ops/MEMORY.retired.md"
run "oryx memory stats -a ops"
run "oryx memory export -a ops --format jsonl | head -1"
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@example.org GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@example.org
run "git init -q -b main && oryx memory init -q && git add . && git commit -qm 'What the agents know'"
run "git checkout -qb topic && oryx memory append -a ops '灰度发布先给内部用户' && git commit -qam topic"
run "git checkout -q main && oryx memory append -a ops 'Rotate the keys on Monday' && git commit -qam main"
run "git merge -q topic -m merge && tail -2 .oryxos/agents/ops/MEMORY.md"
run "oryx memory diff -a ops HEAD~1"
run "sed -i '/灰度/d' .oryxos/agents/ops/MEMORY.md # a program that takes no lock"
run "oryx memory check"
run "git checkout -q .oryxos && oryx memory check"
run "oryx memory migrate-backend --to sqlite --all-agents --switch"
run "oryx memory append -a ops '写进 SQLite 的一条'"
run "oryx memory recall -a ops SQLITE"
run "oryx memory migrate-backend --to markdown --all-agents --switch"
run "tail -2 .oryxos/agents/ops/MEMORY.md"
run "oryx memory recall -a ops --mode ranked --explain 'who has to review what goes live? 复核几个人'"
printf '\n$ %s\n' "python docs/conversation.py # an agent with memory; its model follows a script"
python "$here/conversation.py"
run "oryx memory load -a demo"
run "oryx memory session list"
