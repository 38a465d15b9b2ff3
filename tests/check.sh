# SPDX-License-Identifier: MIT
# For test scripts: `check NAME command...` runs the command, where the first that fails ends it, and says how it went; its output
# is shown if it failed. `finish` says how it went altogether. Both need a folder of their own in $tmp.
passed=0
failed=0

check() { # name command...
    name=$1
    shift
    (set -e; "$@") >"$tmp/log" 2>&1 # not as the condition itself, where set -e means nothing
    if [ $? -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        cat "$tmp/log"
        echo "FAIL $name"
    fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
