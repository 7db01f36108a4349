# Sourced by the sanitizer scripts: the test targets that they build, beside the library's own tests. `leaking` ones forget leases and
# futures on purpose, or end while threads are in jobs that nobody waits for.
targets=() leaking=()
# each_tested COMMAND...: a `cargo test` of which every program must have tests, and pass them.
each_tested() {
    local log started tested
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" || return
    started=$(grep -cE '^ *Running ' "$log") tested=$(grep -cE '^test result: ok\. [1-9]' "$log")
    rm -f "$log"
    ((started > 0 && tested == started)) || { echo "of $started test programs $tested have tested anything" >&2; return 1; }
}
for name in seeds events stress; do
    [[ -e tests/$name.rs || -e tests/$name/main.rs || -e verification/$name/main.rs ]] || { echo "no such test target: $name" >&2; exit 1; }
    targets+=(--test "$name")
done
for name in faults wait drains deadlines pool; do
    [[ -e tests/$name.rs || -e tests/$name/main.rs || -e verification/$name/main.rs ]] || { echo "no such test target: $name" >&2; exit 1; }
    leaking+=(--test "$name")
done
